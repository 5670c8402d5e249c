//go:build !linux && !darwin

package upstream

import "syscall"

// probe cannot check a socket on this system: a stale connection is detected when it is
// used, and the handler retries what may be repeated.
type probe struct {
	wrapped bool
	buf     [1]byte
}

func (p *probe) init(syscall.RawConn) {}

func (p *probe) stale(bool) bool { return false }
