package main

import (
	"context"
	"sync"
	"time"
)

// maxWait bounds every wait for a gate.
const maxWait = 2 * time.Minute

// gates are what requests wait at until a test opens them. A gate may be opened
// before anybody waits.
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

// wait reports whether the gate opened before ctx or the time ended.
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
