package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/loadgen"
)

const (
	// observeTimeout limits the requests to one relay.
	observeTimeout = 5 * time.Second
	// maxAnswer limits the bytes read of one answer.
	maxAnswer = 16 << 20
	// The metric of retries, and its label value for a retry that was not made.
	retriesMetric  = "ringway_relay_retries_total"
	reasonLabel    = "reason"
	reasonNoBudget = "no_budget"
)

// relayAddress has the base URLs of a relay.
type relayAddress struct{ ID, Ingress, Admin string }

// observer reads the state of the relays from their admin API, as an operator does.
type observer struct {
	relays []relayAddress
	client *http.Client
	last   []relayView // the newest of each relay
}

// relayView is the state of a relay according to its admin API.
type relayView struct {
	ID    string
	Ready bool
	api.Service
	Retries uint64
	// Silent is why the relay did not answer; the other fields are then those of its last
	// answer.
	Silent error
}

// affine reports whether the relay connects to workers; the peers of a relay that is not
// affine are relays.
func (v relayView) affine() bool { return v.Role == "affine" }

// connected counts the workers that the relay is connected to.
func (v relayView) connected() (n int) {
	for _, p := range v.Peers {
		if v.affine() && p.Connected {
			n++
		}
	}
	return n
}

func newObserver(relays []relayAddress) *observer {
	return &observer{relays: relays, last: make([]relayView, len(relays)), client: &http.Client{Timeout: observeTimeout, Transport: &http.Transport{}}}
}

func (o *observer) close() { o.client.CloseIdleConnections() }

// observe queries all relays concurrently. One that does not answer in time, as on a busy
// machine, has its last state.
func (o *observer) observe(ctx context.Context) []relayView {
	var all sync.WaitGroup
	for i, r := range o.relays {
		all.Go(func() {
			view, err := o.observeRelay(ctx, r)
			if err != nil {
				view = o.last[i]
				view.ID, view.Silent = r.ID, err
			}
			o.last[i] = view
		})
	}
	all.Wait()
	return slices.Clone(o.last)
}

func (o *observer) observeRelay(ctx context.Context, r relayAddress) (relayView, error) {
	v := relayView{ID: r.ID}
	if err := o.get(ctx, r.Admin+"/readyz", func(status int, _ io.Reader) error {
		v.Ready = status == http.StatusOK
		return nil
	}); err != nil {
		return v, err
	}
	if err := o.get(ctx, r.Admin+"/api/v1/services/"+service, func(status int, body io.Reader) error {
		if status != http.StatusOK { // the relay does not know the service yet
			return nil
		}
		return json.NewDecoder(body).Decode(&v.Service)
	}); err != nil {
		return v, err
	}
	return v, o.get(ctx, r.Admin+"/metrics", func(_ int, body io.Reader) (err error) {
		v.Retries, err = retries(body)
		return err
	})
}

func (o *observer) get(ctx context.Context, url string, read func(status int, body io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return err
	}
	body := io.LimitReader(resp.Body, maxAnswer)
	err = read(resp.StatusCode, body)
	_, _ = io.Copy(io.Discard, body) // so that the connection can be reused
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}

// retries sums the retries in the metrics of a relay, without those that were not made.
func retries(body io.Reader) (uint64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, m := range families[retriesMetric].GetMetric() {
		made := true
		for _, l := range m.GetLabel() {
			made = made && !(l.GetName() == reasonLabel && l.GetValue() == reasonNoBudget)
		}
		if made {
			sum += m.GetCounter().GetValue()
		}
	}
	return uint64(sum), nil
}

// missing describes what a fleet of the given number of workers still lacks; empty if every
// relay is ready, knows all workers and relays, and is connected to all that the plan
// assigns to it.
func missing(views []relayView, workers int) string {
	affine := affinity.PlanConfig{}.Serving(len(views), workers)
	for _, v := range views {
		switch {
		case v.Silent != nil:
			return fmt.Sprintf("%s did not answer: %v", v.ID, v.Silent)
		case !v.Ready:
			return v.ID + " is not ready"
		case v.Endpoints != workers:
			return fmt.Sprintf("%s knows %d of %d workers", v.ID, v.Endpoints, workers)
		case len(v.AffineRelays) != affine:
			return fmt.Sprintf("%s knows %d of %d relays", v.ID, len(v.AffineRelays), affine)
		}
		for _, e := range v.Catalogue {
			if e.Unreachable { // killed, and not noticed by membership yet
				return v.ID + " cannot reach " + e.NodeID
			}
		}
		for _, p := range v.Peers {
			if !p.Connected {
				return v.ID + " is not connected to " + p.Node
			}
		}
	}
	return ""
}

// settlePoll is the interval at which await calls observe.
const settlePoll = 50 * time.Millisecond

// noteInterval is the time between two notes about a fleet that is not whole yet.
const noteInterval = 10 * time.Second

// await calls observe until nothing is missing, and returns the last result. If ctx ends
// first, the error has what is still missing. It calls note, unless nil, at every
// noteInterval with what is missing.
func (o *observer) await(ctx context.Context, workers int, note func(lack string)) ([]relayView, error) {
	for noted := time.Now(); ; {
		views := o.observe(context.WithoutCancel(ctx)) // observe has its own timeout
		lack := missing(views, workers)
		if lack == "" {
			return views, nil
		}
		if note != nil && time.Since(noted) >= noteInterval {
			noted = time.Now()
			note(lack)
		}
		if !loadgen.Sleep(ctx, settlePoll) {
			return views, fmt.Errorf("the fleet is not whole: %s", lack)
		}
	}
}

// mutedOutput passes log records on until it is switched on: at the end all members leave
// simultaneously, and each would log warnings about the others.
type mutedOutput struct {
	out io.Writer
	on  atomic.Bool
}

// Write passes one log record on, unless muted.
func (m *mutedOutput) Write(record []byte) (int, error) {
	if m.on.Load() {
		return len(record), nil
	}
	return m.out.Write(record)
}

// keptRecords is how many log records are printed after a live table.
const keptRecords = 20

// logRing keeps the newest log records while a table occupies the screen. Each Write is one
// log record. It is safe for concurrent use.
type logRing struct {
	mu      sync.Mutex
	records []string
	dropped int
}

// Write keeps one log record.
func (r *logRing) Write(record []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == keptRecords {
		r.records = append(r.records[:0], r.records[1:]...)
		r.dropped++
	}
	r.records = append(r.records, string(record))
	return len(record), nil
}

// dump writes the kept log records and the number of the dropped ones.
func (r *logRing) dump(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "the members logged (%d earlier records are not shown):\n", r.dropped); err != nil {
		return err
	}
	for _, record := range r.records {
		if _, err := io.WriteString(w, record); err != nil {
			return err
		}
	}
	return nil
}
