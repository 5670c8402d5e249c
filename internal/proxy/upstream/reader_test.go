package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
)

// read runs a test over each protocol, in a bubble, with a service in memory. Begin gets the answer to
// a GET, whose context a test may end.
func read(t *testing.T, service http.HandlerFunc, test func(t *testing.T, pool *Pool, begin func(Options) (Answer, *program))) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := make(pipes)
				server := &http.Server{Protocols: new(http.Protocols), Handler: service}
				server.Protocols.SetHTTP1(true)
				server.Protocols.SetUnencryptedHTTP2(true)
				go func() { _ = server.Serve(listener) }()
				pool, err := NewPool(Config{Address: "service:80", Protocol: protocol, Dial: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					listener <- far
					return near, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				test(t, pool, func(x Options) (Answer, *program) {
					ctx, leave := context.WithCancel(t.Context())
					w := &program{ResponseRecorder: httptest.NewRecorder(), leave: leave, cut: make(chan struct{}, 1000)}
					answer, _, fault := pool.Begin(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), &x)
					if fault != nil {
						t.Fatal(fault)
					}
					return answer, w
				})
				if s := pool.Stats(); s.InFlight != 0 {
					t.Errorf("after the end %d are in flight", s.InFlight)
				}
				pool.Close()
				_ = server.Close()
			})
		})
	}
}

// program has the head, and reads the body.
type program struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
	cut   chan struct{} // the watch has ended what waits for the program
}

func (p *program) SetWriteDeadline(time.Time) error {
	p.cut <- struct{}{}
	return nil
}

func TestAProgramReadsWhatDeliverPasses(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		length  bool
		trailer string
		toClose bool // over HTTP/1.1
	}{
		"no body":                   {length: true},
		"a body of known length":    {body: "hello", length: true},
		"a body of unknown length":  {body: "hello"},
		"a body that is long":       {body: strings.Repeat("0123456789", 50_000)},
		"a body until the close":    {body: "hello", toClose: true},
		"trailers behind a body":    {body: "hello", trailer: "42"},
		"trailers and nothing else": {trailer: "42"},
	} {
		t.Run(name, func(t *testing.T) {
			service := func(w http.ResponseWriter, r *http.Request) {
				if c.toClose && r.ProtoMajor == 1 {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"+c.body)
					_ = conn.Close()
					return
				}
				if c.trailer != "" {
					w.Header().Set("Trailer", "Sum")
				}
				if !c.length {
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.WriteString(w, c.body)
				w.Header().Set("Sum", c.trailer)
			}
			read(t, service, func(t *testing.T, pool *Pool, begin func(Options) (Answer, *program)) {
				for _, size := range []int{1, 7, 1 << 20} {
					answer, w := begin(Options{})
					var body strings.Builder
					p := make([]byte, size)
					n, err := answer.Read(nil)
					if n != 0 || err != nil && (err != io.EOF || c.body != "") {
						t.Fatalf("an empty read: %d, %v", n, err)
					}
					for err == nil {
						n, err = answer.Read(p)
						body.Write(p[:n])
					}
					res, fault := answer.End()
					if body.String() != c.body || err != io.EOF || fault != nil || res.BytesOut != int64(len(c.body)) {
						t.Errorf("by %d: %d bytes of %d, counted %d, %v, %v", size, body.Len(), len(c.body), res.BytesOut, err, fault)
					}
					if got := w.Header().Get(http.TrailerPrefix + "Sum"); got != c.trailer {
						t.Errorf("by %d: the trailer is %q", size, got)
					}
					if s := pool.Stats(); !c.toClose && (s.Dials != 1 || s.Idle != 1) {
						t.Errorf("by %d: the connection was not kept: %+v", size, s)
					}
				}
			})
		})
	}
}

func TestAnAnswerThatAProgramDoesNotReadToItsEndIsNoFailureOfTheEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		whole, leaves, fails bool
	}{
		"the rest has arrived":              {whole: true},
		"the rest has not arrived":          {fails: true},
		"the rest has arrived for no one":   {whole: true, leaves: true, fails: true},
		"the program leaves within the end": {leaves: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			service := func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "hello")
				if !c.whole {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}
			read(t, service, func(t *testing.T, pool *Pool, begin func(Options) (Answer, *program)) {
				answer, w := begin(Options{})
				if n, err := answer.Read(make([]byte, 2)); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				synctest.Wait()
				if c.leaves {
					w.leave()
				}
				_, fault := answer.End()
				if (fault != nil) != c.fails || fault != nil && !(fault.Client() && fault.Committed()) {
					t.Errorf("ended by %v", fault)
				}
				if s := pool.Stats(); pool.h2 == nil && (s.Idle == 1) == c.fails {
					t.Errorf("%d connections are kept", s.Idle)
				}
			})
		})
	}
}

// The endpoint sends a byte, and then no other.
func TestTheWatchKnowsWhetherItWaitsForTheProgramOrForTheEndpoint(t *testing.T) {
	const limit = 10 * time.Second
	service := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "h")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	t.Run("a program that does not read", func(t *testing.T) {
		read(t, service, func(t *testing.T, _ *Pool, begin func(Options) (Answer, *program)) {
			answer, w := begin(Options{Progress: limit})
			_, _ = answer.Read(nil)
			began := time.Now()
			select {
			case <-w.cut:
			case <-time.After(2 * limit):
			}
			if after := time.Since(began); after < limit || after > limit+time.Second {
				t.Errorf("ended after %v", after)
			}
			w.leave()
			if res, fault := answer.End(); fault == nil || !fault.Client() || res.Silent != SilentClient {
				t.Errorf("silent: %v, %v", res.Silent, fault)
			}
		})
	})
	t.Run("an endpoint that sends nothing more", func(t *testing.T) {
		read(t, service, func(t *testing.T, _ *Pool, begin func(Options) (Answer, *program)) {
			answer, w := begin(Options{Progress: limit})
			_, _ = answer.Read(nil)
			for range 2 { // together the program takes longer than the limit
				time.Sleep(limit - time.Second)
				_, _ = answer.Read(nil)
			}
			if n, err := answer.Read(make([]byte, 2)); n != 1 || err != nil {
				t.Error(n, err)
			}
			began := time.Now()
			_, err := answer.Read(make([]byte, 1))
			if after := time.Since(began); after < limit || after > limit+time.Second {
				t.Errorf("ended after %v", after)
			}
			res, fault := answer.End()
			if !errors.Is(err, errSilent[SilentEndpoint]) || fault.Client() || res.Silent != SilentEndpoint || len(w.cut) > 0 {
				t.Errorf("silent: %v, %v; %d cuts", res.Silent, err, len(w.cut))
			}
		})
	})
	t.Run("a program that leaves while it reads", func(t *testing.T) {
		read(t, service, func(t *testing.T, _ *Pool, begin func(Options) (Answer, *program)) {
			answer, w := begin(Options{})
			_, _ = answer.Read(make([]byte, 1))
			began := time.Now()
			time.AfterFunc(limit, w.leave)
			_, err := answer.Read(make([]byte, 1))
			if after := time.Since(began); !errors.Is(err, context.Canceled) || after > limit+time.Second {
				t.Errorf("after %v: %v", after, err)
			}
			if _, fault := answer.End(); fault == nil || !fault.Client() {
				t.Errorf("ended by %v", fault)
			}
		})
	})
}
