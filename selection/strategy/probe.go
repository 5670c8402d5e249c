package strategy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// probe is the outcome of connecting to an address once.
type probe struct {
	address string
	took    time.Duration
	at      time.Time
	err     error
}

// run measures what is due, each address by one probe at a time and at most
// maxProbes together, until ctx ends. Results count as they come in: the nearest
// endpoint is the first to be known.
func (b *byDistance) run(ctx context.Context) error {
	if !b.busy.CompareAndSwap(false, true) {
		return errProbing
	}
	defer b.busy.Store(false)
	var probing sync.WaitGroup
	defer probing.Wait()
	places, results := make(chan struct{}, maxProbes), make(chan probe)
	underWay := make(map[string]bool)
	for {
		due, next := b.due(time.Now(), underWay)
		for _, address := range due {
			underWay[address] = true
			probing.Go(func() {
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return
				}
				p := b.probe(ctx, address)
				<-places
				select {
				case results <- p:
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-time.After(next):
		case p := <-results:
			delete(underWay, p.address)
			b.record(p)
		}
	}
}

// due returns the addresses to probe now, and the time until the next one is due.
func (b *byDistance) due(now time.Time, underWay map[string]bool) (addresses []string, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = b.spec.Expiry
	for _, e := range b.candidates {
		left := b.measured[e.Address].due.Sub(now)
		switch {
		case e.Address == "" || underWay[e.Address]:
		case left <= 0:
			addresses = append(addresses, e.Address)
		default:
			next = min(next, left)
		}
	}
	return addresses, next
}

// probe connects once and hangs up.
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

// record takes in the outcome of a probe.
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
		return // it left meanwhile
	}
	if known.failed = p.err != nil; known.failed {
		known.due = p.at.Add(b.spec.Expiry / 10)
	} else {
		known.took, known.at, known.due = p.took, p.at, p.at.Add(b.spec.Expiry)
	}
	b.measured[p.address] = known
	b.publish()
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
