package downstream_test

import (
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

// lacking is a listener of a host that lacks something once.
type lacking struct {
	net.Listener
	err    error
	failed atomic.Bool
}

func (l *lacking) Accept() (net.Conn, error) {
	if l.failed.CompareAndSwap(false, true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", l.err)}
	}
	return l.Listener.Accept()
}

// All of these are of one connection, or pass: see accept(2).
func TestAFailureToAcceptIsNotTheEndOfTheServer(t *testing.T) {
	for _, err := range []error{syscall.ENOMEM, syscall.ENOBUFS, syscall.EPERM, syscall.EPROTO, syscall.ENETDOWN, syscall.EMFILE} {
		t.Run(err.Error(), func(t *testing.T) {
			l := procs.Listen(t)
			addr, _ := serveOn(t, downstream.Config{Handler: http.HandlerFunc(describe)}, &lacking{Listener: l, err: err})
			dial(t, addr).say(get).answer("GET")
		})
	}
}
