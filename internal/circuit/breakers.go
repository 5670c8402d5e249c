package circuit

import (
	"container/list"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/selection"
)

// Breakers are the circuits of one relay. A nil *Breakers allows every request.
type Breakers struct {
	cfg     Config
	exempt  map[string]bool
	metrics *metrics

	mu    sync.Mutex // guards the fields below
	byKey map[key]*list.Element
	order list.List // of *circuit, most recently used first
}

type key struct{ caller, service, endpoint string }

// New checks the configuration and reports all invalid settings together.
func New(cfg Config) (*Breakers, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("circuit: register metrics: %w", err)
	}
	b := &Breakers{cfg: cfg, exempt: map[string]bool{}, metrics: m, byKey: map[key]*list.Element{}}
	for _, service := range cfg.Exempt {
		b.exempt[service] = true
	}
	return b, nil
}

// Ticket is a request that was allowed. The zero Ticket is not counted.
type Ticket struct {
	probe time.Duration // Config.Period of a probe, else 0
	done  func(error)   // of a probe

	circuit *circuit // of a request that is no probe
	changes uint64   // circuit.changes when it was allowed
}

var errFailure, errIgnored = errors.New("failure"), errors.New("ignored")

// Done reports how the request ended. Only a success or a failure counts; requests that were
// cancelled, shed or invalid do not: pass [selection.Cancelled].
func (t Ticket) Done(o selection.Outcome) {
	err := errIgnored
	switch o {
	case selection.Success:
		err = nil
	case selection.Failure, selection.NoAnswer:
		err = errFailure
	}
	switch {
	case t.done != nil:
		t.done(err)
	case t.circuit != nil && err != errIgnored:
		t.circuit.count(t.changes, err)
	}
}

// Answered reports that an answer begins which is no failure, and returns the ticket for the rest of
// the request. A probe succeeds when its answer has lasted for a period: it may last for days, and
// no other probe is allowed until its end.
func (t Ticket) Answered() Ticket {
	if t.probe == 0 {
		return t
	}
	var once sync.Once
	lasts := time.AfterFunc(t.probe, func() { once.Do(func() { t.done(nil) }) })
	return Ticket{done: func(err error) {
		lasts.Stop()
		once.Do(func() { t.done(err) })
	}}
}

// Allow decides whether a request may be sent now. An error is a [NotHealthyError]:
// exclude the endpoint for this request and pick another. An empty endpoint means the
// circuit of the whole service; on an error the caller then refuses the request.
func (b *Breakers) Allow(caller, service, endpoint string) (Ticket, error) {
	if b == nil || b.exempt[service] {
		return Ticket{}, nil
	}
	c := b.circuit(key{caller, service, endpoint})
	t, err := c.allow()
	if err == nil {
		return t, nil
	}
	b.metrics.rejected.Inc()
	if b.cfg.ReportOnly {
		return Ticket{}, nil
	}
	return Ticket{}, err
}

// circuit returns the circuit of a key, a new one if there is none.
func (b *Breakers) circuit(k key) *circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.byKey[k]; e != nil {
		b.order.MoveToFront(e)
		return e.Value.(*circuit)
	}
	if b.order.Len() >= b.cfg.MaxCircuits {
		oldest := b.order.Remove(b.order.Back()).(*circuit)
		delete(b.byKey, oldest.key)
		oldest.forget()
		b.metrics.forgotten.Inc()
	}
	// Clone, so that the names do not keep the whole request in memory.
	k = key{strings.Clone(k.caller), strings.Clone(k.service), strings.Clone(k.endpoint)}
	c := newCircuit(k, &b.cfg, b.metrics)
	b.byKey[k] = b.order.PushFront(c)
	return c
}

// circuit extends gobreaker's: while half-open, it allows one probe per period.
type circuit struct {
	key
	cfg     *Config
	metrics *metrics
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	changes atomic.Uint64 // how often the state has changed; written with gobreaker's lock held

	mu        sync.Mutex
	state     gobreaker.State // as counted by the gauges
	forgotten bool
	since     time.Time // when state began
	probing   bool      // a probe is in flight
	probeAt   time.Time // earliest time of the next probe
}

func newCircuit(k key, cfg *Config, m *metrics) *circuit {
	c := &circuit{key: k, cfg: cfg, metrics: m}
	c.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(cfg.Probes),
		Interval:    cfg.Period,
		Timeout:     cfg.Period,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			judged := n.TotalSuccesses + n.TotalFailures
			return int64(judged) > int64(cfg.MinRequests) && float64(n.TotalFailures) > cfg.FailureShare*float64(judged)
		},
		IsExcluded:    func(err error) bool { return err == errIgnored },
		OnStateChange: func(_ string, _, to gobreaker.State) { c.changed(to) },
	})
	m.circuits[gobreaker.StateClosed].Inc()
	return c
}

func (c *circuit) allow() (Ticket, error) {
	changes := c.changes.Load()
	state := c.breaker.State()
	switch {
	case state == gobreaker.StateClosed:
		return Ticket{circuit: c, changes: changes}, nil
	case state == gobreaker.StateOpen || !c.mayProbe():
		return Ticket{}, c.refusal()
	}
	done, err := c.breaker.Allow()
	if err != nil { // opened in the meantime
		c.probed()
		return Ticket{}, c.refusal()
	}
	return Ticket{probe: c.cfg.Period, done: func(err error) {
		done(err)
		c.probed()
	}}, nil
}

// count counts a request that was allowed while the circuit was closed, unless the circuit has changed
// since. Gobreaker drops the result of a request that began in an earlier period, as most that time
// out do, so the request is passed to gobreaker at its end.
func (c *circuit) count(changes uint64, err error) {
	if c.changes.Load() != changes {
		return
	}
	done, refused := c.breaker.Allow()
	if refused != nil {
		return
	}
	if c.changes.Load() != changes { // it has become half-open in the meantime, and this is no probe
		err = errIgnored
	}
	done(err)
}

// mayProbe claims the probe of this period and reports whether it was available.
func (c *circuit) mayProbe() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.probing || now.Before(c.probeAt) {
		return false
	}
	c.probing, c.probeAt = true, now.Add(c.cfg.Period)
	return true
}

func (c *circuit) probed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// changed is called with gobreaker's lock held.
func (c *circuit) changed(to gobreaker.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes.Add(1)
	c.metrics.transitions[to].Inc()
	if !c.forgotten {
		c.metrics.circuits[c.state].Dec()
		c.metrics.circuits[to].Inc()
	}
	c.state, c.since = to, time.Now()
	if to == gobreaker.StateOpen {
		c.probeAt = time.Time{} // the open period is the wait
	}
}

// forget removes the circuit from the gauges.
func (c *circuit) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = true
	c.metrics.circuits[c.state].Dec()
}

func (c *circuit) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.since.Add(c.cfg.Period) // when open becomes half-open
	if c.state == gobreaker.StateHalfOpen {
		at = c.probeAt
	}
	return &NotHealthyError{Caller: c.caller, Service: c.service, Endpoint: c.endpoint, RetryAfter: max(0, time.Until(at))}
}

// metrics are resolved once per Breakers. No label value comes from a caller.
type metrics struct {
	circuits    [3]prometheus.Gauge // by gobreaker.State
	transitions [3]prometheus.Counter
	rejected    prometheus.Counter
	forgotten   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	f := metric.With(nil) // registered below, with all errors
	circuits := f.GaugeVec("ringway_circuits", "Circuits (one per caller and service), by state: closed, half_open, open.", "state")
	transitions := f.CounterVec("ringway_circuit_transitions_total", "Changes of circuits, by the state they changed to.", "state")
	m := &metrics{
		rejected:  f.Counter("ringway_circuit_rejected_total", "Requests that a circuit refused, or would have refused without report-only mode."),
		forgotten: f.Counter("ringway_circuit_forgotten_total", "Circuits that were forgotten because there were too many."),
	}
	for state, name := range [...]string{
		gobreaker.StateClosed: "closed", gobreaker.StateHalfOpen: "half_open", gobreaker.StateOpen: "open",
	} {
		m.circuits[state] = circuits.WithLabelValues(name)
		m.transitions[state] = transitions.WithLabelValues(name)
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(circuits), r.Register(transitions), r.Register(m.rejected), r.Register(m.forgotten))
}
