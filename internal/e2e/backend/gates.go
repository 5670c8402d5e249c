package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxWait limits every wait for a gate.
const maxWait = 2 * time.Minute

// gates are the points where requests wait until a test opens them. A gate may be opened
// before the first request waits.
type gates struct {
	mu    sync.Mutex
	byKey map[string]chan struct{}
}

func (g *gates) get(key string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey == nil {
		g.byKey = make(map[string]chan struct{})
	}
	gate, ok := g.byKey[key]
	if !ok {
		gate = make(chan struct{})
		g.byKey[key] = gate
	}
	return gate
}

func (g *gates) open(key string) {
	gate := g.get(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

// wait returns true if the gate opened, and false if ctx ended or maxWait passed first.
func (g *gates) wait(ctx context.Context, key string) bool {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-g.get(key):
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// slots serve requests in the order of arrival, each slot one request at a time.
//
// The slots are a timetable: a request starts in the slot that is free first, when that
// slot becomes free, or immediately if the slot is free already. A slot that was held
// during time.Sleep would lose the time that the sleep lasts too long, and would complete
// fewer than 1 / service time requests per second.
type slots struct {
	mu   sync.Mutex
	free []time.Time // when each slot becomes free
	slow float64
}

func newSlots(n int) *slots { return &slots{free: make([]time.Time, max(n, 1)), slow: 1} }

// take reserves a slot and returns when a request of that service time completes.
func (s *slots) take(now time.Time, work time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := slices.MinFunc(s.free, time.Time.Compare)
	i := slices.Index(s.free, first)
	if first.Before(now) {
		first = now
	}
	s.free[i] = first.Add(time.Duration(float64(work) * s.slow))
	return s.free[i]
}

func (s *slots) setSlow(by float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = by
}
