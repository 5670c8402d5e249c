package tcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/internal/wire"
)

// serve opens a session for one connection and returns when the session has ended.
func (s *Server) serve(conn net.Conn) {
	defer s.untrack(conn)
	defer conn.Close()
	w := &writer{conn: conn, header: http.Header{}}
	_ = conn.SetReadDeadline(time.Now().Add(s.cfg.HelloTimeout))
	if reason, err := s.cfg.Prologue(conn); err != nil {
		if errors.Is(err, net.ErrClosed) {
			reason = reasonCancelled
		}
		s.refuse(conn, reason, err.Error())
		return
	}
	r := s.request(conn)
	if s.cfg.Service == "" {
		hello, err := readHello(conn)
		w.first = hello.raw
		if err != nil {
			s.refuse(conn, err.reason, err.Error())
			return
		}
		r.Host = hello.serverName
	}
	_ = conn.SetReadDeadline(time.Time{})
	if !s.begins(conn) {
		s.cfg.Refused.WithLabelValues(reasonCancelled).Inc()
		return
	}
	s.cfg.Began(conn)
	session := &ingress.Session{}
	s.carry(w, r.WithContext(ingress.WithSession(s.ctx, session)))
	switch {
	case w.taken:
	case session.Refused == "":
		s.refuse(conn, reasonCancelled, "the relay stopped, or its answer was no session")
	default:
		s.refuse(conn, string(session.Refused), session.Detail)
	}
}

// carry runs the handler, which ends a broken session with http.ErrAbortHandler.
func (s *Server) carry(w *writer, r *http.Request) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		socket.Reset(w.conn)
		if p != http.ErrAbortHandler {
			stack := make([]byte, 16<<10)
			s.cfg.Logger.Error("the handler of a session panicked: the session is reset", "client", r.RemoteAddr, "panic", p, "stack", string(stack[:runtime.Stack(stack, false)]))
		}
	}()
	s.cfg.Handler.ServeHTTP(w, r)
}

// request returns the request that opens a session for the connection.
func (s *Server) request(conn net.Conn) *http.Request {
	from := conn.RemoteAddr().String()
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Host: s.cfg.Service, Body: http.NoBody, RemoteAddr: from,
		Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {wire.UpgradeTCP},
			wire.ConnectionHeader: {from + " " + conn.LocalAddr().String()},
		},
	}
	if s.cfg.Service != "" {
		r.Header[wire.ServiceHeader] = []string{s.cfg.Service}
	}
	return r
}

// refuse ends a connection that gets no session: with an alert of TLS if the client has to
// send a ClientHello, else with a reset.
func (s *Server) refuse(conn net.Conn, reason, detail string) {
	counted := reason
	if !slices.Contains(reasons, reason) {
		counted = reasonOther // a later release may have more codes
	}
	s.cfg.Refused.WithLabelValues(counted).Inc()
	s.cfg.Logger.Debug("connection refused", "client", conn.RemoteAddr(), "service", s.cfg.Service, "reason", reason, "err", detail)
	if s.cfg.Service != "" {
		socket.Reset(conn)
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(alertTimeout))
	_, _ = conn.Write(alertOf(reason)) // the client may be gone
}

// writer lets the handler take over the connection of a client. An answer that is none
// reaches no client.
type writer struct {
	conn   net.Conn
	header http.Header
	first  []byte // read from conn already
	taken  bool
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) Write(b []byte) (int, error) { return len(b), nil }

func (w *writer) WriteHeader(int) {}

func (w *writer) SetReadDeadline(t time.Time) error { return w.conn.SetReadDeadline(t) }

func (w *writer) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

var errTaken = errors.New("tcp: the connection was taken over before")

// Hijack implements http.Hijacker. The reader holds the bytes that were read.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.taken {
		return nil, nil, errTaken
	}
	w.taken = true
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(w.first), w.conn), max(len(w.first), 16))
	if _, err := in.Peek(len(w.first)); err != nil {
		return nil, nil, err
	}
	c := &sessionConn{w.conn}
	return c, bufio.NewReadWriter(in, bufio.NewWriterSize(c, 16)), nil
}

// sessionConn is the client's connection as the end of a session.
type sessionConn struct{ net.Conn }

// Switched keeps the answer of HTTP from the client.
func (c *sessionConn) Switched(http.Header) error { return nil }

// NetConn returns the connection below.
func (c *sessionConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction to the client.
func (c *sessionConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
