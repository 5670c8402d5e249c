//go:build linux || darwin

package upstream

import "syscall"

// probe checks an idle socket without blocking and without consuming bytes.
type probe struct {
	raw     syscall.RawConn
	peek    func(fd uintptr) bool // bound once, to avoid an allocation per call
	wrapped bool                  // TLS: bytes may be a session ticket
	n       int
	err     error
	buf     [1]byte
}

func (p *probe) init(rc syscall.RawConn) {
	p.raw = rc
	p.peek = p.peekAt
}

func (p *probe) peekAt(fd uintptr) bool {
	p.n, _, p.err = syscall.Recvfrom(int(fd), p.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return true
}

// stale reports whether the other side has closed the connection or sent bytes. On a fresh
// TLS connection bytes are expected.
func (p *probe) stale(used bool) bool {
	if p.raw == nil {
		return false
	}
	if err := p.raw.Read(p.peek); err != nil {
		return true
	}
	switch {
	case p.err == syscall.EAGAIN || p.err == syscall.EINTR:
		return false
	case p.err != nil || p.n == 0:
		return true
	}
	return used || !p.wrapped
}
