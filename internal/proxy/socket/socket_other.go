//go:build !linux && !darwin

package socket

import "net"

// Socket can look at no socket on this system.
type Socket struct{}

// Init does nothing on this system.
func (*Socket) Init(net.Conn) {}

// Look always returns Quiet on this system.
func (*Socket) Look() Sight { return Quiet }

// Read is not possible on this system.
func (*Socket) Read(func() []byte, func()) (n int, err error, ok bool) { return 0, nil, false }
