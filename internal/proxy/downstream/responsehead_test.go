package downstream_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/proxy/downstream"
)

// The head as it is on the wire: a client of HTTP/1.0 keeps a connection only with keep-alive.
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

func TestTheFramingOfAnAnswerFollowsWhatIsKnown(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/short":
			_, _ = io.WriteString(w, "abc")
		case "/flushed":
			_, _ = io.WriteString(w, "abc")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "def")
		case "/long":
			_, _ = io.WriteString(w, long)
		case "/declared":
			w.Header().Set("Content-Length", fmt.Sprint(len(long)))
			_, _ = io.WriteString(w, long[:10])
			_, _ = io.WriteString(w, long[10:])
		case "/trailers":
			w.Header().Set("Trailer", "X-T")
			_, _ = io.WriteString(w, "abc")
			w.Header().Set(http.TrailerPrefix+"X-T", "1")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "abc"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("writing a body of a 204: %v", err)
			}
		case "/empty":
		}
	})
	addr, _ := start(t, downstream.Config{Handler: handler})
	for _, c := range []struct {
		path, method, version, body string
		length                      int64
		chunked, close              bool
	}{
		{"/short", "GET", "1.1", "abc", 3, false, false},
		{"/short", "GET", "1.0", "abc", 3, false, true},
		{"/short", "HEAD", "1.1", "", -1, false, false},
		{"/flushed", "GET", "1.1", "abcdef", -1, true, false},
		{"/flushed", "GET", "1.0", "abcdef", -1, false, true},
		{"/long", "GET", "1.1", long, -1, true, false},
		{"/long", "GET", "1.0", long, -1, false, true},
		{"/declared", "GET", "1.1", long, int64(len(long)), false, false},
		{"/declared", "HEAD", "1.1", "", int64(len(long)), false, false},
		{"/trailers", "GET", "1.1", "abc", -1, true, false},
		{"/none", "GET", "1.1", "", 0, false, false},
		{"/empty", "GET", "1.1", "", 0, false, false},
		{"/empty", "POST", "1.1", "", 0, false, false},
	} {
		t.Run(c.method+c.path+c.version, func(t *testing.T) {
			conn := dial(t, addr).say(c.method + " " + c.path + " HTTP/" + c.version + "\r\nHost: a\r\n\r\n")
			resp, body := conn.answer(c.method)
			if body != c.body || (len(resp.TransferEncoding) > 0) != c.chunked || resp.Close != c.close {
				t.Errorf("%d bytes, encoding %q, close %v", len(body), resp.TransferEncoding, resp.Close)
			}
			if resp.ContentLength != c.length && !(c.method == "HEAD" && c.length < 0) {
				t.Errorf("length %d, want %d", resp.ContentLength, c.length)
			}
			if c.path == "/trailers" && resp.Trailer.Get("X-T") != "1" {
				t.Errorf("trailers %v", resp.Trailer)
			}
			if resp.Header.Get("Date") == "" {
				t.Error("no Date")
			}
			if c.close {
				conn.ends()
			} else if _, body := conn.say("GET /short HTTP/1.1\r\nHost: a\r\n\r\n").answer("GET"); body != "abc" {
				t.Errorf("the next answer is %q", body)
			}
		})
	}
}

func TestAnHTTP10ClientCanKeepItsConnection(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
	})})
	c := dial(t, addr)
	for range 3 {
		resp, _ := c.say("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer("GET")
		if resp.Header.Get("Connection") != "keep-alive" {
			t.Errorf("%v", resp.Header)
		}
	}
}

func TestAHeaderOfAnAnswerCannotAddALine(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-A"] = []string{"a\r\nX-B: b"}
		w.Header()["X C"] = []string{"c"}
		w.Header()["X-D\r\nX-E"] = []string{"d"}
	})})
	resp, _ := dial(t, addr).say(get).answer("GET")
	if resp.Header.Get("X-A") != "a  X-B: b" || len(resp.Header) != 3 { // with Date and Content-Length
		t.Errorf("%q", resp.Header)
	}
}

func TestAnAnswerOverHTTP2HasTheHeadThatItsBodyNeeds(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Connection"], h["Keep-Alive"], h["X-Bad"] = []string{"keep-alive"}, []string{"1"}, []string{"a\nb"}
		switch r.URL.Path {
		case "/short":
			_, _ = io.WriteString(w, "four")
		case "/flushed":
			_, _ = io.WriteString(w, "four")
			w.(http.Flusher).Flush()
		case "/declared":
			h.Set("Content-Length", "4")
			_, _ = io.WriteString(w, "four")
		case "/204":
			h.Set("Content-Length", "4")
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
				t.Error(err)
			}
		case "/hints":
			h.Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			h.Del("Link")
		case "/long":
			h.Set("Content-Length", "2")
			if _, err := io.WriteString(w, "three"); err != http.ErrContentLength {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "ok")
		case "/zero":
			h.Set("Content-Length", "0")
			if _, err := io.WriteString(w, "x"); err != http.ErrContentLength {
				t.Error(err)
			}
		}
	})})
	c := streamsTo(t, addr)
	for _, row := range []struct {
		method, path string
		status       int
		length, body string
	}{
		{"GET", "/short", 200, "4", "four"},
		{"HEAD", "/short", 200, "", ""},
		{"GET", "/flushed", 200, "", "four"},
		{"GET", "/declared", 200, "4", "four"},
		{"HEAD", "/declared", 200, "4", ""},
		{"GET", "/204", 204, "", ""},
		{"GET", "/nothing", 200, "0", ""},
		{"GET", "/long", 200, "2", "ok"},
		{"GET", "/zero", 200, "0", ""},
		{"GET", "/hints", 103, "", ""},
	} {
		head, body, err := exchange(t, c, request(row.method, row.path))
		if head.Status != row.status || value(&head, "content-length") != row.length || row.status >= 200 && (err != nil || body != row.body || value(&head, "date") == "") {
			t.Errorf("%s %s: %+v %q %v", row.method, row.path, head, body, err)
		}
		for _, f := range head.Fields {
			if f.Name == "connection" || f.Name == "keep-alive" || f.Name == "x-bad" {
				t.Errorf("%s has the field %v", row.path, f)
			}
		}
	}
}
