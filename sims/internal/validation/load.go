package validation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	client := &http.Client{Timeout: 35 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 512, DisableCompression: true,
	}}
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
			a.worker, a.err = send(client, relays[r.relay], r.work)
			a.took = time.Since(now)
		})
	}
	sent.Wait()
	return answers, nil
}

func send(client *http.Client, relay string, work time.Duration) (worker string, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+relay+"/", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Ringway-Service", service)
	req.Header.Set(workHeader, strconv.FormatInt(int64(work), 10))
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // the body is read below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", fmt.Errorf("the answer of %s broke off: %w", relay, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s: %.300s", relay, resp.Status, body)
	}
	return resp.Header.Get("Ringway-Endpoint"), nil
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
	slow    float64
	slots   chan struct{}
	present atomic.Int64 // requests, including waiting ones
	socket  net.Listener
	server  *http.Server
	served  chan struct{} // closed when Serve has returned

	mu   sync.Mutex // guards late
	late []time.Duration
}

func startBackend(slow float64) (*backend, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a backend: %w", err)
	}
	b := &backend{slow: slow, slots: make(chan struct{}, queueing.Slots), socket: socket, served: make(chan struct{})}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(b.served)
		_ = b.server.Serve(socket) // returns http.ErrServerClosed after Close
	}()
	return b, nil
}

// addr returns the listen address.
func (b *backend) addr() string { return b.socket.Addr().String() }

// die closes the listener and every connection immediately, as the kernel does for a killed
// process.
func (b *backend) die() {
	_ = b.server.Close()
	<-b.served
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
		w.Header().Set("Ringway-Load", strconv.FormatInt(load, 10))
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
		b, err := startBackend(s)
		if err != nil {
			for _, b := range all {
				b.die()
			}
			return nil, errors.Join(err)
		}
		all = append(all, b)
	}
	return all, nil
}
