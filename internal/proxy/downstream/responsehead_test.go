package downstream_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/proxy/downstream"
)

// The head as it is on the wire: a client of HTTP/1.0 keeps a connection only if it is told so.
func TestTheStatusLineHasAReasonAndHTTP10IsToldWhetherItsConnectionStays(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if r.URL.Query().Has("streams") {
			_ = http.NewResponseController(w).Flush()
			return
		}
		if r.URL.Query().Has("sized") {
			w.Header().Set("Content-Length", "0")
		}
		w.WriteHeader(status)
	})})
	for _, row := range []struct{ request, line, connection string }{
		{"GET /404 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 Not Found", ""},
		{"GET /299 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 299 ", ""},
		{"GET /200 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK", "close"},
		{"GET /200 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK", "close"},
		{"GET /200 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK", "close"}, // its handler names no length
		{"GET /200?sized HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK", "keep-alive"},
		{"GET /204 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 204 No Content", "keep-alive"},
		{"GET /200?streams HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK", "close"},
	} {
		c := dial(t, addr).say(row.request)
		line, err := c.ReadString('\n')
		if err != nil || line != row.line+"\r\n" {
			t.Errorf("%q: %q, %v", row.request, line, err)
		}
		connection := ""
		for {
			field, err := c.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if value, is := strings.CutPrefix(field, "Connection: "); is {
				connection = strings.TrimSpace(value)
			}
			if field == "\r\n" {
				break
			}
		}
		if connection != row.connection {
			t.Errorf("%q: Connection: %q, want %q", row.request, connection, row.connection)
		}
		if row.connection == "close" {
			if rest, err := io.ReadAll(c.Reader); err != nil || len(rest) > 0 {
				t.Errorf("%q: %q, %v", row.request, rest, err)
			}
		}
	}
}

// Two heads are within the limit each, and arrive together but for the end of the second.
func TestTheLimitOfAHeadCountsFromItsBeginning(t *testing.T) {
	const limit = 2000
	addr, _ := start(t, downstream.Config{MaxHead: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })})
	head := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", limit-100) + "\r\n\r\n"
	}
	c := dial(t, addr).say(head("/first") + head("/second")[:limit-200])
	if resp, body := c.answer("GET"); resp.StatusCode != 200 || body != "/first" {
		t.Fatalf("%d %q", resp.StatusCode, body)
	}
	c.say(head("/second")[limit-200:])
	if resp, body := c.answer("GET"); resp.StatusCode != 200 || body != "/second" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}
