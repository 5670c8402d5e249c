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
	"time"
)

// answer is what the generator saw of one request.
type answer struct {
	worker string
	took   time.Duration // from when it was sent
	late   time.Duration // from when it was due until then
	err    error
}

// replay sends requests when they are due, whatever becomes of the others, and returns when the
// last is answered. They begin soon after the call.
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
	defer func() { _ = resp.Body.Close() }() // read to its end below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", fmt.Errorf("the answer of %s broke off: %w", relay, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s: %.300s", relay, resp.Status, body)
	}
	return resp.Header.Get("Ringway-Endpoint"), nil
}

// withoutWork is the beginning of the case without its work: what the machine, the relays and the
// generator cost by themselves.
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

// observe sums up the answers to the requests that count, less an overhead.
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
		// The endpoint may be more than the worker's id.
		id, _, _ := strings.Cut(a.worker, "@")
		n, err := strconv.Atoi(strings.TrimPrefix(id, "worker-"))
		if err != nil || n < 0 || n >= c.Workers {
			return seen, fmt.Errorf("a relay says that %q has answered: no worker of this fleet", a.worker)
		}
		seen.byWorker[n]++
		seen.latencies = append(seen.latencies, max(0, a.took-overhead))
	}
	return seen, nil
}

// quantile of some durations, q from 0 to 1.
func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
