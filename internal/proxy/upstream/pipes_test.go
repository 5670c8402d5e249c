package upstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// maxDials is the pool's own.
const maxDials = 4

// pipes is an endpoint in memory, for tests in a bubble of synctest: its dials wait
// until the test decides on them.
type pipes struct {
	pool    *upstream.Pool
	dials   chan dialling // under way
	running sync.WaitGroup

	mu     sync.Mutex
	served []string // the paths of the requests, in order
	answer func(path string) string
}

// dialling is one dial that has begun.
type dialling struct {
	ctx    context.Context
	result chan error
}

func (d dialling) succeed()       { d.result <- nil }
func (d dialling) fail(err error) { d.result <- err }

func newPipes(t *testing.T, cfg upstream.Config) *pipes {
	p := &pipes{dials: make(chan dialling, 1000)}
	cfg.Address = "192.0.2.1:80"
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := dialling{ctx, make(chan error, 1)}
		p.dials <- d
		select {
		case err := <-d.result:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		near, far := net.Pipe()
		p.running.Go(func() { p.serve(far) })
		return near, nil
	}
	p.pool = newPool(t, cfg)
	return p
}

// serve answers 200 with the path, or with the text that answer returns: answer may wait.
func (p *pipes) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.served = append(p.served, r.URL.Path)
		answer := p.answer
		p.mu.Unlock()
		text := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.URL.Path), r.URL.Path)
		if answer != nil {
			text = answer(r.URL.Path)
		}
		if text == "" {
			return
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// carried is how a request ended.
type carried struct {
	path, body string
	outcome
}

// carry begins a request.
func (p *pipes) carry(ctx context.Context, method, path string, x upstream.Options) <-chan carried {
	done := make(chan carried, 1)
	go func() {
		w := httptest.NewRecorder()
		res, e := p.pool.Carry(w, httptest.NewRequestWithContext(ctx, method, path, nil), &x)
		done <- carried{path, w.Body.String(), outcome{res, e}}
	}()
	return done
}

// end drains the pool, after which nothing may be left.
func (p *pipes) end(t *testing.T) {
	t.Helper()
	if err := p.pool.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if s := p.pool.Stats(); s.Open+s.InFlight+s.Waiting+s.Dialling != 0 {
		t.Errorf("at the end %+v", s)
	}
	p.running.Wait()
}
