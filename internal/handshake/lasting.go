package handshake

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// The first and the longest wait after an error of Accept.
const (
	shortestWait = 5 * time.Millisecond
	longestWait  = time.Second
)

// Lasting returns a listener whose Accept fails only when it is closed, or with an error that is not
// one of the system, as a listener within a process reports its end. Errors of the system are of one
// connection, or of a shortage that passes, such as too few descriptors or too little memory: see
// accept(2). Servers, those of net/http and gRPC included, end with most of them, and with a server
// ends its process and all that is in flight. Accept waits after each and tries again. logger gets at
// most one line in ten seconds.
func Lasting(inner net.Listener, logger *slog.Logger) net.Listener {
	return &lasting{Listener: inner, logger: logger, lines: rate.Sometimes{Interval: refusalQuiet}, closed: make(chan struct{})}
}

type lasting struct {
	net.Listener
	logger *slog.Logger
	lines  rate.Sometimes
	closed chan struct{}
	closes sync.Once
}

// Accept implements net.Listener.
func (l *lasting) Accept() (net.Conn, error) {
	for wait := shortestWait; ; wait = min(2*wait, longestWait) {
		conn, err := l.Listener.Accept()
		if _, ofSystem := errors.AsType[syscall.Errno](err); err == nil || errors.Is(err, net.ErrClosed) || !ofSystem {
			return conn, err
		}
		l.lines.Do(func() {
			l.logger.Warn("cannot accept a connection, and tries again: if this lasts, raise the limit of open files, or find out what uses up the memory of this host",
				"addr", l.Addr().String(), "err", err)
		})
		select {
		case <-time.After(wait):
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close also ends the wait.
func (l *lasting) Close() error {
	l.closes.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
