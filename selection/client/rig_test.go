package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/wire"
)

// relay is a real HTTP server on loopback that answers with its own name.
type relay struct {
	t        testing.TB
	addr     string
	server   *http.Server
	requests atomic.Int64
	done     chan struct{}
}

func newRelay(t testing.TB, handler http.HandlerFunc) *relay {
	t.Helper()
	return newRelayAt(t, "127.0.0.1:0", handler)
}

func newRelayAt(t testing.TB, addr string, handler http.HandlerFunc) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, addr: listener.Addr().String(), done: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	r.server = &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		w.Header().Set("Relay", r.addr)
		if handler != nil {
			handler(w, req)
			return
		}
		body, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s %s %s %s", req.Method, req.Header.Get(wire.ServiceHeader), req.URL.Path, body)
	})}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(listener)
	}()
	t.Cleanup(r.kill)
	return r
}

// kill ends the relay in the middle of whatever it does.
func (r *relay) kill() {
	_ = r.server.Close()
	<-r.done
}

// leave lets requests end and takes no more.
func (r *relay) leave() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		r.t.Error(err)
	}
	<-r.done
}

func addrs(relays []*relay) (out []string) {
	for _, r := range relays {
		out = append(out, r.addr)
	}
	return out
}

func find(relays []*relay, addr string) *relay {
	for _, r := range relays {
		if r.addr == addr {
			return r
		}
	}
	return nil
}

func newRelays(t testing.TB, n int, handler http.HandlerFunc) []*relay {
	relays := make([]*relay, n)
	for i := range relays {
		relays[i] = newRelay(t, handler)
	}
	return relays
}

// running starts a client and ends it with the test.
func running(t testing.TB, cfg Config) (*Client, *http.Client) {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c, &http.Client{Transport: c}
}

// settled waits until the client has all the places it can have.
func settled(t testing.TB, c *Client, places int) relaypool.Status {
	t.Helper()
	return eventually(t, c, fmt.Sprintf("%d relays are connected", places), func(s relaypool.Status) bool {
		return len(s.Primaries)+len(s.Backups) == places && len(s.Joining) == 0
	})
}

func eventually(t testing.TB, c *Client, what string, ok func(relaypool.Status) bool) relaypool.Status {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s := c.status(); ok(s) {
			return s
		}
	}
	t.Fatalf("not within 30 s: %s: %+v", what, c.status())
	return relaypool.Status{}
}

func get(web *http.Client, url string) (body, from string, err error) {
	resp, err := web.Get(url)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), resp.Header.Get("Relay"), err
}

// traffic is requests from several goroutines, as fast as they are answered.
type traffic struct {
	t        testing.TB
	callers  sync.WaitGroup
	quit     chan struct{}
	answered atomic.Int64
	mu       sync.Mutex
	failed   []error
}

func load(t testing.TB, send func() error) *traffic {
	l := &traffic{t: t, quit: make(chan struct{})}
	for range 4 {
		l.callers.Go(func() {
			for {
				select {
				case <-l.quit:
					return
				default:
				}
				if err := send(); err == nil {
					l.answered.Add(1)
				} else {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// more waits until n more requests have been answered.
func (l *traffic) more(n int64) {
	l.t.Helper()
	until := l.answered.Load() + n
	procs.Await(l.t, fmt.Sprintf("%d requests are answered", until), func() bool { return l.answered.Load() >= until })
}

// stop ends the traffic; no request may have failed.
func (l *traffic) stop() {
	l.t.Helper()
	close(l.quit)
	l.callers.Wait()
	if len(l.failed) > 0 {
		l.t.Errorf("%d of %d requests failed: %v", len(l.failed), l.answered.Load(), l.failed[0])
	}
}

// stream is a body that can be read only once.
func stream(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }

var errTired = errors.New("the caller is tired")
