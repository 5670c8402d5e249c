package relay

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/ringway/ringway/internal/process"
)

// lateListener holds a TCP address from the start and accepts connections after open.
// Until then the kernel refuses them, if it can hold an address without listening (see
// bind): clients then use another relay immediately. It is safe for concurrent use.
type lateListener struct {
	net.Listener               // bound
	listen       func() error  // starts to let connections in
	passed       bool          // by the service manager, which keeps a copy of it
	opened       chan struct{} // closed by open
	closed       chan struct{} // closed by Close
	opening      sync.Once
	closing      sync.Once
}

// listenLate binds addr.
func listenLate(addr string) (*lateListener, error) {
	socket, listen, err := bind(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, process.UnboundRemedy(err))
	}
	return &lateListener{Listener: socket, listen: listen, opened: make(chan struct{}), closed: make(chan struct{})}, nil
}

// passedListener returns the listener of a socket that was passed to this process, nil
// without one. Its connections wait in the kernel until open.
func passedListener(socket net.Listener) *lateListener {
	if socket == nil {
		return nil
	}
	return &lateListener{Listener: socket, passed: true, listen: func() error { return nil }, opened: make(chan struct{}), closed: make(chan struct{})}
}

// open lets connections in. It is called once, and fails if another process has begun to
// listen on the address.
func (l *lateListener) open() error {
	if err := l.listen(); err != nil {
		return fmt.Errorf("listen on %s: %w: %s", l.Addr(), err, process.UnboundRemedy(err))
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

// refuse makes the kernel ignore new connections, if it can, so that none waits to be
// accepted when the listener is closed: the kernel would reset it. Connections that are
// being opened are still accepted. A client that begins one meanwhile tries again after a
// second, and is refused. A socket that was passed to this process is left alone: its
// connections wait for the next process.
func (l *lateListener) refuse() {
	if l.passed {
		return
	}
	if raw, ok := l.Listener.(syscall.Conn); ok {
		ignoreNew(raw) // without it a few connections are reset
	}
}

// pending reports whether a connection waits to be accepted.
func (l *lateListener) pending() bool {
	raw, ok := l.Listener.(syscall.Conn)
	return ok && !l.passed && hasPending(raw)
}

// Close releases the address. A second call returns no error, because a stop closes the
// listener before the server does.
func (l *lateListener) Close() (err error) {
	l.closing.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}
