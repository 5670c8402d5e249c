package strategy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/publish"
)

// maxProbes limits the connections that one strategy opens at the same time.
const maxProbes = 16

// restPerCandidate is how long the results of probes wait, for each candidate, before those that
// have come meanwhile are ranked together: 100 ms with 20,000 candidates, which take about 10 ms to
// rank, and no time with a few.
const restPerCandidate = 5 * time.Microsecond

// byDistance implements closest and farthest: endpoints sorted by the time it takes to
// connect to them, measured in the background. An endpoint whose last probe failed keeps
// its last time but comes after those that answered; an endpoint that never answered is
// not used. So when every probe fails because this relay is cut off, the last order
// stays. (XIP-79 measures within the request, one endpoint after the other, and if all
// fail it measures again for every request.)
type byDistance struct {
	spec    Spec
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	metrics *Metrics

	table atomic.Pointer[distances]
	wake  chan struct{} // capacity 1: the candidates changed
	busy  atomic.Bool   // run is running

	mu         sync.Mutex // guards the fields below and publishing tables
	candidates []*Endpoint
	measured   map[string]measurement // by address: exactly those of the candidates
	unranked   bool                   // measured has results that the table lacks
}

// distances is the immutable table of byDistance.
type distances struct {
	ranked     []*Endpoint   // measured endpoints, best first
	times      []measurement // of ranked; for explanations
	unmeasured []*Endpoint
}

// measurement holds the results of the probes of an address.
type measurement struct {
	took   time.Duration
	at     time.Time // when took was measured; zero if the address never answered
	failed bool      // whether the last probe failed
	due    time.Time // time of the next probe
}

// class sorts addresses whose last probe failed after the others.
func (m measurement) class() int {
	if m.failed {
		return 1
	}
	return 0
}

func newByDistance(cfg Config) *byDistance {
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	return &byDistance{
		spec: cfg.Spec, dial: cfg.Dial, metrics: cfg.Metrics,
		wake: make(chan struct{}, 1), measured: make(map[string]measurement),
	}
}

func (b *byDistance) update(sorted []*Endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.candidates = only(sorted, b.spec.Preferred); len(b.candidates) == 0 {
		b.candidates = sorted
	}
	kept := make(map[string]measurement, len(b.candidates))
	for _, e := range b.candidates {
		kept[e.Address] = b.measured[e.Address]
	}
	b.measured = kept
	b.publish()
	publish.Notify(b.wake)
}

// publish ranks the candidates. b.mu is held.
func (b *byDistance) publish() {
	type timed struct {
		*Endpoint
		measurement
	}
	t, list := &distances{}, make([]timed, 0, len(b.candidates))
	for _, e := range b.candidates {
		if m := b.measured[e.Address]; m.at.IsZero() {
			t.unmeasured = append(t.unmeasured, e)
		} else {
			list = append(list, timed{e, m})
		}
	}
	sign := time.Duration(1)
	if b.spec.Name == Farthest {
		sign = -1
	}
	slices.SortFunc(list, func(x, y timed) int {
		return cmp.Or(x.class()-y.class(), cmp.Compare(sign*x.took, sign*y.took), strings.Compare(x.Node, y.Node))
	})
	t.ranked, t.times = make([]*Endpoint, len(list)), make([]measurement, len(list))
	for i, one := range list {
		t.ranked[i], t.times[i] = one.Endpoint, one.measurement
	}
	b.unranked = false
	b.table.Store(t)
}

func (b *byDistance) describe() (rule, measure string) {
	which := "least"
	if b.spec.Name == Farthest {
		which = "most"
	}
	return "the " + which + " time to connect of those that answered their last probe and are not excluded; then those that answered an earlier one", "seconds to connect"
}

func (b *byDistance) pick(r Request, d *Decision) (*Endpoint, error) {
	t := b.table.Load()
	winner, err := first(t.ranked, 0, &r, d)
	if d != nil {
		t.explain(d)
	}
	if winner != nil || len(t.unmeasured) == 0 {
		return winner, err
	}
	for _, e := range t.unmeasured {
		if !r.excludes(e) {
			return nil, errUnmeasured
		}
	}
	return nil, errAllExcluded
}

// explain adds the measurements to the candidates, which are in the order of ranked.
func (t *distances) explain(d *Decision) {
	for i := range t.ranked {
		m, c := t.times[i], &d.Candidates[i]
		c.Score = m.took.Seconds()
		c.Note += ", measured " + time.Since(m.at).Round(time.Millisecond).String() + " ago"
		if m.failed {
			c.Note += ", the last probe failed"
		}
	}
	for _, e := range t.unmeasured {
		d.consider(e, 0, noteUnmeasured)
	}
}

var errProbing = errors.New("selection: Run is already running: one Run measures for all picks")

// probe is the result of one connection attempt to an address.
type probe struct {
	address string
	took    time.Duration
	at      time.Time
	err     error
}

// run probes the addresses that are due until ctx ends, at most maxProbes simultaneously
// and one probe per address. The first result counts as soon as it arrives, so the nearest
// endpoint is known first; those that follow within a rest are ranked together.
func (b *byDistance) run(ctx context.Context) error {
	if !b.busy.CompareAndSwap(false, true) {
		return errProbing
	}
	defer b.busy.Store(false)
	var probing sync.WaitGroup
	defer probing.Wait()
	results := make(chan probe, maxProbes) // room for all that are under way
	underWay := make(map[string]bool, maxProbes)
	var waiting []string     // for a place
	var next, rest time.Time // when there is something to do, but not before the rest is over
	for {
		now := time.Now()
		if !now.Before(next) && !now.Before(rest) {
			ranked, pause := b.rank()
			due, left := b.due(now, underWay)
			waiting, now = due, time.Now()
			if next = now.Add(max(left, pause)); ranked {
				rest = now.Add(pause)
			}
		}
		for len(waiting) > 0 && len(underWay) < maxProbes {
			address := waiting[0]
			waiting, underWay[address] = waiting[1:], true
			probing.Go(func() { results <- b.probe(ctx, address) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
			next, rest = time.Time{}, time.Time{}
		case <-time.After(max(next.Sub(now), rest.Sub(now))):
		case p := <-results:
			delete(underWay, p.address)
			b.record(p)
			next = time.Time{}
		}
	}
}

// rank publishes the results that are not ranked yet, if there are any. The next ones should wait
// for the pause.
func (b *byDistance) rank() (ranked bool, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ranked = b.unranked; ranked {
		b.publish()
	}
	return ranked, time.Duration(len(b.candidates)) * restPerCandidate
}

// due returns the addresses to probe now, and the time until the next one is due. Those that were
// never probed come first, then those that have been due for longest: many that never answer must
// not keep others waiting for their timeouts.
func (b *byDistance) due(now time.Time, underWay map[string]bool) (addresses []string, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = b.spec.Expiry
	for address, m := range b.measured {
		left := m.due.Sub(now)
		switch {
		case address == "" || underWay[address]:
		case left <= 0:
			addresses = append(addresses, address)
		default:
			next = min(next, left)
		}
	}
	slices.SortFunc(addresses, func(x, y string) int { return b.measured[x].due.Compare(b.measured[y].due) })
	return addresses, next
}

// probe opens a connection and closes it.
func (b *byDistance) probe(ctx context.Context, address string) probe {
	ctx, cancel := context.WithTimeout(ctx, b.spec.Timeout)
	defer cancel()
	begin := time.Now()
	conn, err := b.dial(ctx, "tcp", address)
	p := probe{address: address, at: time.Now(), err: err}
	p.took = p.at.Sub(begin)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return p
}

// record stores the result of a probe, which rank publishes.
func (b *byDistance) record(p probe) {
	m := b.metrics
	switch {
	case p.err == nil:
		m.probes[probeOK].Inc()
		m.connectTimes.Observe(p.took.Seconds())
	case isTimeout(p.err):
		m.probes[probeTimeout].Inc()
	default:
		m.probes[probeRefused].Inc()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known, wanted := b.measured[p.address]
	if !wanted {
		return // it is not a candidate any more
	}
	if known.failed = p.err != nil; known.failed {
		known.due = p.at.Add(max(b.spec.Expiry/10, minExpiry))
	} else {
		known.took, known.at, known.due = p.took, p.at, p.at.Add(b.spec.Expiry)
	}
	b.measured[p.address], b.unranked = known, true
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
