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
)

// maxProbes bounds the connections that one strategy opens at a time.
const maxProbes = 16

// byDistance is closest and farthest: endpoints by the time it takes to connect to
// them, measured in the background. An endpoint whose last probe failed comes
// after those that answered, with the time it had; one that never answered is not
// used. So when every probe fails, because it is this relay that is cut off, the
// last good order stays. (The source measured within the request, one endpoint
// after the other, and when all failed did so again for every request.)
type byDistance struct {
	spec    Spec
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	metrics *Metrics

	table atomic.Pointer[distances]
	wake  chan struct{} // capacity 1: the candidates changed
	busy  atomic.Bool   // run runs

	mu         sync.Mutex // guards what follows and publishing tables
	candidates []*Endpoint
	measured   map[string]measurement // by address: every candidate's, and no other
}

// distances is the immutable table of byDistance.
type distances struct {
	ranked     []*Endpoint // those that were measured, best first
	unmeasured []*Endpoint
	times      map[string]measurement // of ranked, by address; for explanations
}

// measurement is what is known of an address.
type measurement struct {
	took   time.Duration
	at     time.Time // of took; zero if the address never answered
	failed bool      // the last probe
	due    time.Time // of the next probe
}

// class puts what failed last behind the rest.
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
	select {
	case b.wake <- struct{}{}:
	default: // it will see these, too
	}
}

// publish ranks the candidates. b.mu is held.
func (b *byDistance) publish() {
	t := &distances{times: make(map[string]measurement, len(b.measured))}
	for _, e := range b.candidates {
		if m := b.measured[e.Address]; m.at.IsZero() {
			t.unmeasured = append(t.unmeasured, e)
		} else {
			t.ranked, t.times[e.Address] = append(t.ranked, e), m
		}
	}
	sign := time.Duration(1)
	if b.spec.Name == Farthest {
		sign = -1
	}
	slices.SortFunc(t.ranked, func(x, y *Endpoint) int {
		of, than := t.times[x.Address], t.times[y.Address]
		return cmp.Or(of.class()-than.class(), cmp.Compare(sign*of.took, sign*than.took), strings.Compare(x.Node, y.Node))
	})
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

// explain adds to the candidates, which are those ranked, what was measured.
func (t *distances) explain(d *Decision) {
	for i, e := range t.ranked {
		m, c := t.times[e.Address], &d.Candidates[i]
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

var errProbing = errors.New("selection: Run is running already: one measures for all picks")
