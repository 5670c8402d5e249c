package socket

import (
	"errors"
	"net"
	"os"
)

// conn is a connection whose reads and writes are those of its Socket.
type conn struct {
	net.Conn
	socket Socket
	into   []byte // of the Read that runs
	take   func() []byte
	drop   func()
}

// Direct returns nc for what reads and writes it by itself, such as TLS: its reads and writes are
// those of a Socket. One goroutine at a time may read, and one write. Errors are those that nc would
// have. If nc has no socket, the result is nc. What is around the socket must not change the bytes.
func Direct(nc net.Conn) net.Conn {
	c := &conn{Conn: nc}
	c.socket.Init(Below(nc))
	if !c.socket.Usable() {
		return nc
	}
	c.take, c.drop = func() []byte { return c.into }, func() {}
	return c
}

// Listen returns a listener whose connections are Direct.
func Listen(inner net.Listener) net.Listener { return listener{inner} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Direct(nc), nil
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil // without bytes to read, a call of the system looks like the end
	}
	c.into = b
	n, err := c.socket.Read(c.take, c.drop)
	c.into = nil
	return n, c.failed("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.socket.Write(b)
	return n, c.failed("write", err)
}

// failed returns the error as package net would, which names the connection.
func (c *conn) failed(op string, err error) error {
	if err == nil {
		return nil // without an allocation
	}
	var known *net.OpError
	switch _, system := err.(*os.SyscallError); {
	case errors.As(err, &known):
		return &net.OpError{Op: op, Net: known.Net, Source: known.Source, Addr: known.Addr, Err: known.Err}
	case system:
		return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
	}
	return err // the end
}
