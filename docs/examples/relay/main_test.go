package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
)

// workers stand for the network: they answer by name, and are counted.
type workers struct {
	answer map[string]func(*http.Request) (*http.Response, error)
	took   time.Duration // the longest time of an answer

	mu    sync.Mutex
	asked map[string]int
}

func (w *workers) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.asked[req.URL.Host]++
	w.mu.Unlock()
	time.Sleep(rand.N(w.took)) // of equal ones the same would always win
	return w.answer[req.URL.Host](req)
}

func status(code int, body io.Reader) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Body: io.NopCloser(body), Header: http.Header{}, Request: req}, nil
	}
}

func refused(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

// startRelay runs the relay of this program before six workers that are well.
func startRelay(t *testing.T) (*relay, *workers) {
	r, err := newRelay()
	if err != nil {
		t.Fatal(err)
	}
	net := &workers{answer: map[string]func(*http.Request) (*http.Response, error){}, took: 10 * time.Millisecond, asked: map[string]int{}}
	r.proxy.Transport = net
	var slice []selection.Endpoint
	for i := range 6 {
		name := "worker-" + strconv.Itoa(i)
		net.answer[name] = status(http.StatusOK, strings.NewReader(""))
		slice = append(slice, selection.Endpoint{ID: name, Weight: 1, Value: name})
	}
	if err := r.balancer.Update(slice, r.now()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.refresh(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return r, net
}

// send sends requests at 100 a second and counts those that failed.
func send(r *relay, requests int) (failed int) {
	for range requests {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusOK {
			failed++
		}
		time.Sleep(10 * time.Millisecond)
	}
	return failed
}

func TestADeadAndAFailingWorkerCostAlmostNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := startRelay(t)
		net.answer["worker-0"] = refused
		net.answer["worker-1"] = status(http.StatusInternalServerError, strings.NewReader(""))
		if failed := send(r, 6000); failed > 60 {
			t.Errorf("%d of 6000 requests failed", failed)
		}
	})
}

func TestAnEvictedWorkerComesBackWhenItIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := startRelay(t)
		net.answer["worker-0"] = refused
		send(r, 6000)
		if r.balancer.Stats(r.now())[0].LastReason == "" {
			t.Fatal("the dead worker was not evicted")
		}
		net.answer["worker-0"], net.asked["worker-0"] = status(http.StatusOK, strings.NewReader("")), 0
		// While one request is sent after the other, the fastest of six equal workers gets nearly
		// all. With two requests for each worker at a time, queues decide.
		net.took = 100 * time.Millisecond
		var failed atomic.Int64
		var clients sync.WaitGroup
		for range 12 {
			clients.Go(func() { failed.Add(int64(send(r, 2000))) })
		}
		clients.Wait()
		if n := net.asked["worker-0"]; failed.Load() > 0 || n < 2000 {
			t.Errorf("within two minutes %d of 24000 requests went to the worker that is well again, a fair share is 4000; %d failed", n, failed.Load())
		}
	})
}

func TestAWorkerIsNotBlamedForCallersThatGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := startRelay(t)
		well := net.answer["worker-0"]
		gone := func(req *http.Request) (*http.Response, error) { return nil, req.Context().Err() }
		for name := range net.answer {
			net.answer[name] = gone
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		for range 100 {
			r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}
		for name := range net.answer {
			net.answer[name] = well
		}
		clear(net.asked)
		send(r, 600)
		if len(net.asked) != 6 {
			t.Errorf("only %d of 6 workers get requests: %v", len(net.asked), net.asked)
		}
	})
}

func TestAnAnswerThatBreaksOffIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := startRelay(t)
		net.answer["worker-0"] = status(http.StatusOK, io.MultiReader(strings.NewReader("half"), brokenBody{}))
		broken := 0
		for range 1000 {
			func() {
				defer func() {
					if recover() != nil {
						broken++
					}
				}()
				req := httptest.NewRequest(http.MethodGet, "/", nil)
				// As under a server, where a body that breaks off ends the connection.
				r.ServeHTTP(httptest.NewRecorder(), req.WithContext(context.WithValue(req.Context(), http.ServerContextKey, &http.Server{})))
			}()
			time.Sleep(10 * time.Millisecond)
		}
		if broken == 0 || broken > 30 {
			t.Errorf("%d of 1000 answers broke off", broken)
		}
	})
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestARelayThatDoesNotServeNamesTheOnesThatDo(t *testing.T) {
	r, err := newRelay()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service: service, RelaysPerService: 1, Skip: []string{id},
		Relays: affinity.Relays([]string{id, "relay-1"}), Workers: affinity.Workers([]string{"worker-1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.follow(plan, nil)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "my-relay does not serve echo; ask relay-1") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.follow(nil, nil)
	w = httptest.NewRecorder()
	if r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without workers: %d", w.Code)
	}
}
