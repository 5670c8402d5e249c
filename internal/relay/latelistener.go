package relay

import (
	"fmt"
	"net"
	"sync"
	"syscall"
)

// lateListener holds a TCP address from the start and takes connections from open on.
// Until then the kernel refuses them, where it can hold an address without listening
// (see bind): clients then use another relay at once. It is safe for concurrent use.
type lateListener struct {
	net.Listener               // bound
	listen       func() error  // has connections come in
	opened       chan struct{} // closed by open
	closed       chan struct{} // closed by Close
	opening      sync.Once
	closing      sync.Once
}

// listenLate binds addr, or says why that fails.
func listenLate(addr string) (*lateListener, error) {
	socket, listen, err := bind(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: is another process on this port?", err)
	}
	return &lateListener{Listener: socket, listen: listen, opened: make(chan struct{}), closed: make(chan struct{})}, nil
}

// open lets connections in. It is called once, and fails when another process
// has begun to listen on the address.
func (l *lateListener) open() error {
	if err := l.listen(); err != nil {
		return fmt.Errorf("listen on %s: %w: is another process on this port?", l.Addr(), err)
	}
	l.opening.Do(func() { close(l.opened) })
	return nil
}

// isOpen reports whether connections can come in.
func (l *lateListener) isOpen() bool {
	select {
	case <-l.opened:
		return true
	default:
		return false
	}
}

// Accept waits until the listener is open, then for a connection.
func (l *lateListener) Accept() (net.Conn, error) {
	select {
	case <-l.opened:
		return l.Listener.Accept()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// refuse has the kernel ignore new connections, where it can, so that none waits to be
// accepted when the listener is closed: the kernel would reset it. Those that are being
// made come in. A client that begins one meanwhile tries again after a second, and is
// refused.
func (l *lateListener) refuse() {
	if raw, ok := l.Listener.(syscall.Conn); ok {
		ignoreNew(raw) // else a few are reset
	}
}

// Close gives the address back. To do it again is no error: a stop does it before the
// server does.
func (l *lateListener) Close() (err error) {
	l.closing.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}
