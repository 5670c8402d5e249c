package validation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// answer is the result of one request at the generator.
type answer struct {
	worker string
	took   time.Duration // since the request was sent
	late   time.Duration // from the due time until the request was sent
	err    error
}

// replay sends requests at their due times, independent of the answers, and returns after the
// last answer. The first request starts soon after the call.
func replay(ctx context.Context, requests []request, relays []string) ([]answer, error) {
	client := loadgen.NewClient()
	defer client.CloseIdleConnections()
	answers := make([]answer, len(requests))
	var sent sync.WaitGroup
	began := time.Now()
	for i, r := range requests {
		if d := time.Until(began.Add(r.due)); d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				sent.Wait()
				return nil, ctx.Err()
			}
		}
		sent.Go(func() {
			a, now := &answers[i], time.Now()
			a.late = now.Sub(began.Add(r.due))
			a.worker, a.err = loadgen.Send(client, "http://"+relays[r.relay], http.Header{
				wire.ServiceHeader: {service}, workHeader: {strconv.FormatInt(int64(r.work), 10)},
			})
			a.took = time.Since(now)
		})
	}
	sent.Wait()
	return answers, nil
}

// withoutWork returns the first requests of the case without work. They measure the overhead of
// the machine, the relays and the generator.
func withoutWork(requests []request, length time.Duration) (out []request) {
	for _, r := range requests {
		if r.due > length && len(out) > 0 {
			break
		}
		r.work = 0
		out = append(out, r)
	}
	return out
}

// observe sums up the answers to the measured requests and subtracts the overhead.
func observe(c Case, requests []request, answers []answer, overhead time.Duration) (observation, error) {
	seen := observation{byWorker: make([]int, c.Workers)}
	for i, a := range answers {
		if !requests[i].measured() {
			continue
		}
		if a.err != nil {
			seen.failed++
			continue
		}
		// The endpoint is the worker's id, optionally followed by @ and more.
		id, _, _ := strings.Cut(a.worker, "@")
		n, err := strconv.Atoi(strings.TrimPrefix(id, "worker-"))
		if err != nil || n < 0 || n >= c.Workers {
			return seen, fmt.Errorf("a relay reports an answer of %q: no worker of this fleet", a.worker)
		}
		seen.byWorker[n]++
		seen.latencies = append(seen.latencies, max(0, a.took-overhead))
	}
	return seen, nil
}

// quantile returns a quantile of durations, q from 0 to 1.
func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// workHeader is the header with the work of a request, in nanoseconds.
const workHeader = "Work"

// backend is the service of a worker, as modelled by package queueing: a backend serves up to
// queueing.Slots requests at a time, in the order of arrival, and each takes its work times
// slow.
type backend struct {
	*loadgen.Service
	slow    float64
	slots   chan struct{}
	present atomic.Int64 // requests, including waiting ones

	mu   sync.Mutex // guards late
	late []time.Duration
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	work, err := strconv.ParseInt(r.Header.Get(workHeader), 10, 64)
	if err != nil {
		http.Error(w, "no work: "+err.Error(), http.StatusBadRequest)
		return
	}
	if work > 0 {
		b.present.Add(1)
		b.slots <- struct{}{}
		takes := time.Duration(float64(work) * b.slow)
		began := time.Now()
		time.Sleep(takes)
		late := time.Since(began) - takes
		<-b.slots
		load := b.present.Add(-1)
		w.Header().Set(wire.LoadHeader, strconv.FormatInt(load, 10))
		b.mu.Lock()
		b.late = append(b.late, late)
		b.mu.Unlock()
	}
	_, _ = io.WriteString(w, "done\n") // fails only if the client is gone
}

// lateness returns by how much each sleep of the backends was too long.
func lateness(backends []*backend) (all []time.Duration) {
	for _, b := range backends {
		b.mu.Lock()
		all = append(all, b.late...)
		b.mu.Unlock()
	}
	return all
}

// startBackends starts one backend for each slowness. After an error none is running.
func startBackends(slow []float64) (all []*backend, err error) {
	for _, s := range slow {
		b := &backend{slow: s, slots: make(chan struct{}, queueing.Slots)}
		if b.Service, err = loadgen.Serve(b); err != nil {
			for _, b := range all {
				b.Die()
			}
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}
