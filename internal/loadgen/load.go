package loadgen

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

const (
	// Timeout limits one request. The relays answer sooner, at least with an error.
	Timeout = 35 * time.Second
	// maxInFlight limits the requests in flight. Arrivals beyond the limit wait, and the
	// time of waiting counts as latency.
	maxInFlight = 512
)

// NewClient returns a client for many concurrent requests.
func NewClient() *http.Client {
	return &http.Client{Timeout: Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: maxInFlight, DisableCompression: true}}
}

// LoadConfig configures Load.
type LoadConfig struct {
	// Targets are the base URLs of the relays, used in turn.
	Targets []string
	// Services are chosen at random; one that is listed twice gets twice the requests.
	Services []string
	// Rate is in requests per second.
	Rate float64
	// Random determines the arrivals and the services.
	Random *rand.Rand
	// Done gets the result of each request, from several goroutines. Default: none.
	Done func(Result)
}

// Result is the result of one request.
type Result struct {
	Endpoint string        // that answered, as the relay names it with --expose-route-headers
	Took     time.Duration // since the request was due
	Err      error         // also of an answer other than 200
}

// Load sends requests until ctx ends and returns after the last answer. It is an open loop:
// the time at which a request is due does not depend on the answers, and its latency counts
// from that time. A closed loop would send fewer requests when the fleet is slow and so hide
// the slowness.
func Load(ctx context.Context, cfg LoadConfig) {
	client := NewClient()
	room := make(chan struct{}, maxInFlight)
	var sent sync.WaitGroup
	defer client.CloseIdleConnections()
	defer sent.Wait()
	due := time.Now()
	for n := 0; ; n++ {
		// Exponential gaps, as for independent clients (a Poisson process).
		due = due.Add(time.Duration(cfg.Random.ExpFloat64() / cfg.Rate * float64(time.Second)))
		if !Sleep(ctx, time.Until(due)) {
			return
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		at, target, service := due, cfg.Targets[n%len(cfg.Targets)], cfg.Services[cfg.Random.IntN(len(cfg.Services))]
		sent.Go(func() {
			endpoint, err := Send(client, target, http.Header{wire.ServiceHeader: {service}})
			if cfg.Done != nil {
				cfg.Done(Result{Endpoint: endpoint, Took: time.Since(at), Err: err})
			}
			<-room
		})
	}
}

// Send sends a GET with these headers to the base URL of a relay and returns the endpoint
// that answered. An answer other than 200 is an error. It takes no context, so that
// requests in flight at the end of a load finish.
func Send(client *http.Client, target string, header http.Header) (endpoint string, err error) {
	req, err := http.NewRequest(http.MethodGet, target+"/", nil)
	if err != nil {
		return "", err
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", fmt.Errorf("the answer of %s broke off: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s: %.600s", target, resp.Status, body)
	}
	return resp.Header.Get(wire.EndpointHeader), nil
}
