package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
)

// pipes is a listener whose connections are in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c := <-p; c != nil {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// served returns a pool whose service is in memory, and what ends both.
func served(t *testing.T, protocol advertise.Protocol, service *http.Server) (p *Pool, end func()) {
	t.Helper()
	listener := make(pipes)
	service.Protocols = new(http.Protocols)
	service.Protocols.SetHTTP1(true)
	service.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = service.Serve(listener) }()
	p, err := NewPool(Config{Address: "service:80", Protocol: protocol, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		listener <- far
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p, func() {
		p.Close()
		_ = service.Close()
	}
}

// A stream in both directions may be silent until there is something to send. Its service has
// not got the whole request, so its time to answer has not begun.
func TestTheTimeUntilAnAnswerBeginsWhenTheClientHasEndedItsStream(t *testing.T) {
	const limit = 3 * time.Second
	for name, c := range map[string]struct {
		ended    time.Duration // when the client ends its stream
		answered time.Duration // when the service answers
		length   int64
		latest   time.Duration // the client's own deadline
		progress time.Duration // a minute if 0
		after    time.Duration
		err      error
		silent   Silent
	}{
		"an open stream":                          {ended: time.Hour, answered: 50 * time.Second, length: -1, after: 50 * time.Second},
		"a stream that ends":                      {ended: 10 * time.Second, answered: time.Hour, length: -1, after: 13 * time.Second, err: context.DeadlineExceeded},
		"an answer after the end":                 {ended: 10 * time.Second, answered: 12 * time.Second, length: -1, after: 12 * time.Second},
		"a deadline of the client":                {ended: time.Hour, answered: time.Hour, length: -1, latest: 8 * time.Second, after: 8 * time.Second, err: context.DeadlineExceeded},
		"an idle stream":                          {ended: time.Hour, answered: time.Hour, length: -1, after: time.Minute, err: errSilent[SilentBoth], silent: SilentBoth},
		"an idle stream whose limit is shorter":   {ended: time.Hour, answered: time.Hour, length: -1, progress: time.Second, after: limit, err: errSilent[SilentBoth], silent: SilentBoth},
		"a request that is whole":                 {answered: time.Hour, length: -1, after: limit, err: context.DeadlineExceeded},
		"a large upload of which nothing comes":   {ended: time.Hour, answered: time.Hour, length: 9 << 20, after: limit, err: errBodyLate},
		"an upload whose length is not announced": {ended: time.Hour, answered: time.Hour, length: 1 << 40, after: limit, err: errBodyLate},
	} {
		for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
			t.Run(string(protocol)+": "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pool, end := served(t, protocol, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						answer, gone := time.NewTimer(c.answered), r.Context().Done()
						defer answer.Stop()
						if r.ProtoMajor == 1 { // net/http does not see a client leave whose body it has not read
							conn, buffered, err := http.NewResponseController(w).Hijack()
							if err != nil {
								t.Error(err)
								return
							}
							defer func() { _ = conn.Close() }()
							left := make(chan struct{})
							gone = left
							go func() {
								_, _ = io.Copy(io.Discard, buffered)
								close(left)
							}()
							defer func() { _, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n") }()
						}
						select {
						case <-answer.C:
						case <-gone:
						}
					})})
					body, send := io.Pipe()
					r := httptest.NewRequest(http.MethodPost, "/", body)
					r.ContentLength, r.ProtoMajor, r.ProtoMinor = c.length, 2, 0
					if c.length == 1<<40 { // chunks of HTTP/1.1
						r.ContentLength, r.ProtoMajor, r.ProtoMinor = -1, 1, 1
					}
					if c.ended == 0 {
						_ = send.Close()
					}
					closing := time.AfterFunc(c.ended, func() { _ = send.Close() })
					began := time.Now()
					x := &Options{Deadline: began.Add(limit), AfterBody: limit, Progress: cmp.Or(c.progress, time.Minute)}
					if c.latest > 0 {
						x.Latest = began.Add(c.latest)
					}
					res, fault := pool.Carry(httptest.NewRecorder(), r, x)
					var err error
					if fault != nil {
						err = fault.Err
					}
					if after := time.Since(began); !errors.Is(err, c.err) || res.Silent != c.silent || after < c.after || after > c.after+200*time.Millisecond {
						t.Errorf("ended after %v by %v (silent: %v), want %v and %v", after, err, res.Silent, c.after, c.err)
					}
					closing.Stop()
					_ = send.Close()
					end()
				})
			})
		}
	}
}
