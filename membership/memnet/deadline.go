package memnet

import (
	"sync"
	"time"
)

// gate is a condition variable whose waits can end at a time. Waiting on it is
// durable in a synctest bubble. The owner holds mu for every method but wake.
type gate struct {
	mu       sync.Mutex
	cond     sync.Cond
	deadline time.Time
	timer    *time.Timer
}

func (g *gate) init() { g.cond.L = &g.mu }

// setDeadline changes when waits end; zero is never.
func (g *gate) setDeadline(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	g.deadline = t
	if !t.IsZero() {
		if d := time.Until(t); d > 0 {
			g.timer = time.AfterFunc(d, g.wake)
		}
	}
	g.cond.Broadcast()
}

func (g *gate) stop() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

func (g *gate) expired() bool { return !g.deadline.IsZero() && !time.Now().Before(g.deadline) }

// waitUntil waits for a wake, or for a time.
func (g *gate) waitUntil(t time.Time) {
	timer := time.AfterFunc(time.Until(t), g.wake)
	g.cond.Wait()
	timer.Stop()
}

func (g *gate) wait() { g.cond.Wait() }

func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cond.Broadcast()
}
