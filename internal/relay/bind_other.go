//go:build !linux && !darwin

package relay

import "net"

// bind listens on a TCP address immediately: connections wait until they are accepted.
func bind(addr string) (_ net.Listener, listen func() error, err error) {
	ln, err := net.Listen("tcp", addr)
	return ln, func() error { return nil }, err
}
