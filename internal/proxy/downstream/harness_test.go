package downstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// start serves on loopback until the test ends, and returns the address.
func start(t testing.TB, cfg downstream.Config) (string, *downstream.Server) {
	t.Helper()
	return serveOn(t, cfg, procs.Listen(t))
}

func serveOn(t testing.TB, cfg downstream.Config, l net.Listener) (string, *downstream.Server) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := downstream.New(cfg)
	serve(t, s, l)
	return l.Addr().String(), s
}

// serve serves until the test ends.
func serve(t testing.TB, s *downstream.Server, l net.Listener) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}

// describe answers with what the handler was given.
func describe(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %q %q %s %d %v %v\n", r.Method, r.RequestURI, r.URL, r.Host, r.Proto, r.ContentLength, r.TransferEncoding, r.Close)
	fmt.Fprintf(&b, "path %q raw %q query %q\n", r.URL.Path, r.URL.RawPath, r.URL.RawQuery)
	for _, fields := range []http.Header{r.Header, r.Trailer} {
		for _, name := range slices.Sorted(keys(fields)) {
			fmt.Fprintf(&b, "%s %q\n", name, fields[name])
		}
	}
	fmt.Fprintf(&b, "body %q\n", body)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	_, _ = io.WriteString(w, b.String())
}

func keys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !yield(name) {
				return
			}
		}
	}
}

// client is a connection on which a test sends bytes.
type client struct {
	t testing.TB
	net.Conn
	*bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, nc)
}

func newClient(t testing.TB, nc net.Conn) *client {
	_ = nc.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = nc.Close() })
	return &client{t, nc, bufio.NewReader(nc)}
}

func (c *client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func (c *client) say(text string) *client {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// answer reads one answer with its body.
func (c *client) answer(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%v after %q", err, body)
	}
	return resp, string(body)
}

// ends expects the end of the connection.
func (c *client) ends() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.Reader); err != nil || len(rest) > 0 {
		c.t.Errorf("%q, %v instead of the end of the connection", rest, err)
	}
}

func within[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("never: " + what)
		panic("unreachable")
	}
}
