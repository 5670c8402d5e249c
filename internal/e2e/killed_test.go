//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// killedWorkerLosesNothing kills a worker and its backend under load, with
// requests and a stream in flight on them.
func (f *fleet) killedWorkerLosesNothing(id, service string) func(*testing.T) {
	return func(t *testing.T) {
		w := f.worker(id)
		load := f.startLoad(t, loadConfig{Name: "killed-" + id, Service: service, Relay: f.roundRobin})
		stream := f.streamFrom(t, w, service)
		held := f.holdOn(t, w, service)
		load.more(t, 300)

		w.Signal(t, syscall.SIGKILL)
		w.backend.Signal(t, syscall.SIGKILL)
		<-w.Done
		<-w.backend.Done
		dead := time.Now()
		load.more(t, 300) // while the relays still believe in it
		f.release(t, held.key)
		if rest, err := io.ReadAll(stream); err == nil {
			t.Errorf("a stream that its worker broke off ended as if it were whole: %q", rest)
		}
		procs.Await(t, "the worker is gone", func() bool { return f.sees(w.ID, false) })
		load.more(t, 100)
		results := load.stop()

		lost, late := 0, 0
		for _, r := range failed(results) {
			// A POST that the dead worker may have acted on is the client's to repeat, and so is
			// a request whose answer had begun.
			if !lostOn(w, r) && !brokenOff(w, r) {
				t.Errorf("failed and was not in flight on %s: %v", w.ID, r)
			}
			if lost++; r.began.After(dead) {
				late++
			}
		}
		// An idle HTTP/1.1 connection is checked before a POST is sent over it. One
		// of HTTP/2 is shared: each client may get one whose end is not read yet.
		if allowed := map[string]int{echo: 0, rpc: loadClients / 2}[service]; late > allowed {
			t.Errorf("%d requests that began after the end of %s were lost, want at most %d", late, w.ID, allowed)
		}
		t.Logf("%d requests, %d in flight were lost, %d of them late", len(results), lost, late)
		f.judge(t, results)

		// What was held is known to have been in flight.
		there := w.executed(t)
		for _, r := range held.wait() {
			died := r.method == http.MethodPost && there[r.method+" "+r.id] > 0
			if died != lostOn(w, r) || died == r.ok() {
				t.Errorf("in flight on %s: %v: %v", w.ID, died, r)
			}
		}
		f.judge(t, held.wait())
		for _, r := range f.relays {
			procs.Await(t, fmt.Sprintf("%s logs that %s failed", r.ID, w.ID), func() bool { return memberFailed(r, w.ID) })
		}
	}
}

// lostOn reports whether a POST was refused because the worker died with it.
func lostOn(w *worker, r result) bool {
	got := r.failure()
	return r.method == http.MethodPost && r.status == http.StatusBadGateway && got.Code == "upstream_failed" &&
		len(got.Attempts) > 0 && got.Attempts[len(got.Attempts)-1].Endpoint == w.ID
}

// brokenOff reports whether the worker died between the head and the end of its answer.
func brokenOff(w *worker, r result) bool {
	return r.err != nil && r.status == http.StatusOK && r.header.Get(endpointHeader) == w.ID
}

// held are requests in flight until a gate opens.
type held struct {
	key     string
	clients sync.WaitGroup
	mu      sync.Mutex
	results []result
}

func (h *held) wait() []result {
	h.clients.Wait()
	return h.results
}

// patient has a relay wait for what a test holds on a worker. With the default of 30 s
// a GET is tried elsewhere after 10 s, which a test that waits for processes can take.
var patient = []string{"--request-timeout", "5m"}

// holdOn sends requests that stay in flight until there is a GET and a POST among
// those on the worker.
func (f *fleet) holdOn(t *testing.T, w *worker, service string) *held {
	t.Helper()
	h := &held{key: "killed-" + w.ID}
	client := newClient(t)
	t.Cleanup(h.clients.Wait)
	missing := []string{http.MethodGet, http.MethodPost}
	// A relay with a request on w that is not answered sends w no more for some time.
	relays := f.running()
	for n := range 200 {
		via := relays[n%len(relays)]
		r := result{began: time.Now(), request: request{method: missing[0], addr: via.Ingress,
			path: "/hold?key=" + h.key, service: service, id: fmt.Sprintf("held-%s-%d", w.ID, n)}}
		if r.method == http.MethodPost {
			r.payload = strings.NewReader("x")
		}
		h.clients.Go(func() {
			r.answer = client.send(r.request)
			h.mu.Lock()
			h.results = append(h.results, r)
			h.mu.Unlock()
		})
		procs.Await(t, "the request is in flight", func() bool { return f.executed(t)[r.method+" "+r.id] > 0 })
		if w.executed(t)[r.method+" "+r.id] == 0 {
			continue
		}
		if missing = missing[1:]; len(missing) == 0 {
			return h
		}
		if len(relays) > 1 {
			relays = slices.DeleteFunc(slices.Clone(relays), func(r *relay) bool { return r == via })
		}
	}
	t.Fatalf("of 200 requests no %s reached %s", missing[0], w.ID)
	return nil
}

// streamFrom returns the body of an endless answer of the worker. The streams of
// other workers stay open until it has one: they make those workers the busier.
func (f *fleet) streamFrom(t *testing.T, w *worker, service string) io.Reader {
	t.Helper()
	client := newClient(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	for n := range 100 {
		req, err := request{addr: f.roundRobin(n).Ingress, path: "/events?key=never", service: service}.http(ctx)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get(endpointHeader) == w.ID {
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp.Body
		}
		defer func() { _ = resp.Body.Close() }()
	}
	t.Fatalf("none of 100 streams came from %s", w.ID)
	return nil
}
