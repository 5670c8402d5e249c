package circuit

import (
	"container/list"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Breakers are the circuits of one relay. Nil allows everything.
type Breakers struct {
	cfg     Config
	exempt  map[string]bool
	metrics *metrics

	mu    sync.Mutex // guards what follows
	byKey map[key]*list.Element
	order list.List // of *circuit, the last used first
}

type key struct{ caller, service, endpoint string }

// New checks the configuration and reports all that is wrong with it at once.
func New(cfg Config) (*Breakers, error) {
	if err := cfg.Validate(); err != nil {
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

// Outcome says how a request ended.
type Outcome uint8

const (
	// Ignored says nothing of the endpoint: the caller went away, the endpoint shed
	// load, the request was bad. It is the zero value.
	Ignored Outcome = iota
	// Success: the endpoint answered.
	Success
	// Failure: it did not, in time or at all, or said that it is broken.
	Failure
)

// Ticket is a request that was allowed. The zero Ticket is one that nobody counts.
type Ticket struct{ done func(error) }

var errFailure, errIgnored = errors.New("failure"), errors.New("ignored")

// Done says how the request ended.
func (t Ticket) Done(o Outcome) {
	if t.done == nil {
		return
	}
	switch o {
	case Success:
		t.done(nil)
	case Failure:
		t.done(errFailure)
	default:
		t.done(errIgnored)
	}
}

// Allow decides whether a request may be sent now. An error is a
// [NotHealthyError]: exclude the endpoint for this request and pick another. An empty
// endpoint stands for all of the service's: the request is then refused.
func (b *Breakers) Allow(caller, service, endpoint string) (Ticket, error) {
	if b == nil || b.exempt[service] {
		return Ticket{}, nil
	}
	c := b.circuit(key{caller, service, endpoint})
	done, err := c.allow()
	if err == nil {
		return Ticket{done}, nil
	}
	b.metrics.rejected.Inc()
	if b.cfg.ReportOnly {
		return Ticket{}, nil
	}
	return Ticket{}, err
}

// circuit finds or makes a circuit.
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
	// Not the rest of the request that the names are a part of.
	k = key{strings.Clone(k.caller), strings.Clone(k.service), strings.Clone(k.endpoint)}
	c := newCircuit(k, &b.cfg, b.metrics)
	b.byKey[k] = b.order.PushFront(c)
	return c
}

// circuit adds to gobreaker's that half-open lets one probe go in a period.
type circuit struct {
	key
	cfg     *Config
	metrics *metrics
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu        sync.Mutex
	state     gobreaker.State // as the gauges know it
	forgotten bool
	since     time.Time // of state
	probing   bool      // a probe is out
	probeAt   time.Time // of the next one
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

func (c *circuit) allow() (func(error), error) {
	// Asked first, because gobreaker would let a request through whose Allow comes
	// just after the period in which the circuit was open.
	state := c.breaker.State()
	probe := state == gobreaker.StateHalfOpen
	if state == gobreaker.StateOpen || probe && !c.mayProbe() {
		return nil, c.refusal()
	}
	done, err := c.breaker.Allow()
	switch {
	case err != nil: // opened meanwhile
		if probe {
			c.probed()
		}
		return nil, c.refusal()
	case !probe:
		return done, nil
	}
	return func(err error) {
		done(err)
		c.probed()
	}, nil
}

// mayProbe takes the probe of this period.
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
	c.metrics.transitions[to].Inc()
	if !c.forgotten {
		c.metrics.circuits[c.state].Dec()
		c.metrics.circuits[to].Inc()
	}
	c.state, c.since = to, time.Now()
	if to == gobreaker.StateOpen {
		c.probeAt = time.Time{} // the period that it is open is the wait
	}
}

// forget takes the circuit out of the gauges.
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
