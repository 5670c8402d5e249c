package health

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// serve answers every connection to a loopback address with handle, which gets it
// until it returns, and waits for all of them at the end of the test.
func serve(t *testing.T, handle func(*net.TCPConn)) (address string) {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", handle)
}

func serveOn(t *testing.T, listen string, handle func(*net.TCPConn)) (address string) {
	t.Helper()
	listener := listenOn(t, listen)
	procs.Accept(t, listener, func(conn net.Conn) { handle(conn.(*net.TCPConn)) })
	return listener.Addr().String()
}

// hang accepts and never answers.
func hang(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }

// reset reads the beginning of a request and breaks the connection.
func reset(conn *net.TCPConn) {
	_, _ = conn.Read(make([]byte, 1))
	_ = conn.SetLinger(0)
}

// say reads an HTTP request and answers with these bytes.
func say(answer string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, answer)
		}
	}
}

// sayAndHang is say, with the connection left open.
func sayAndHang(answer string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		say(answer)(conn)
		hang(conn)
	}
}

// serveHTTP runs a real HTTP server for HTTP/1 and clear HTTP/2.
func serveHTTP(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	return server
}
