package procs

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Listen returns a listener on a free port of loopback. The end of the test closes it.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Accept calls serve with each connection of a listener, concurrently, and closes the
// connection afterwards. The end of the test closes the listener and waits for all calls: a
// connection that stays open is a hang.
func Accept(t testing.TB, l net.Listener, serve func(net.Conn)) {
	var calls sync.WaitGroup
	calls.Go(func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			calls.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		calls.Wait()
	})
}

// Serve runs a server until the end of the test, which closes it, and returns its address.
func Serve(t testing.TB, server interface {
	Serve(net.Listener) error
	Close() error
}) (addr string) {
	t.Helper()
	l := Listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// Connected returns both ends of a connection over loopback. The caller closes them.
func Connected(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// Dial connects to an address until the end of the test.
func Dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Refusing returns an address of loopback that refuses connections until the end of the test:
// a connection uses it as the address of its client, so no process can listen there by chance.
func Refusing(t testing.TB) string {
	t.Helper()
	client, server := Connected(t)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client.LocalAddr().String()
}
