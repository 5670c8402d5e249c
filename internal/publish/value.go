package publish

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Value holds the newest *T. The zero Value holds nil and is ready to use.
type Value[T any] struct {
	current atomic.Pointer[T]

	mu       sync.Mutex // guards watchers, and serializes Store and Watch
	watchers map[chan *T]struct{}
}

// Load returns the newest value, nil before the first Store. It never blocks.
func (v *Value[T]) Load() *T { return v.current.Load() }

// Store publishes a value to readers and watchers. It never blocks on a watcher.
func (v *Value[T]) Store(value *T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current.Store(value)
	for ch := range v.watchers {
		offer(ch, value)
	}
}

// Watch returns a channel that delivers the current value, if there is one, and then always
// the newest. The channel is closed when ctx ends.
func (v *Value[T]) Watch(ctx context.Context) <-chan *T {
	ch := make(chan *T, 1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watchers == nil {
		v.watchers = make(map[chan *T]struct{})
	}
	v.watchers[ch] = struct{}{}
	if cur := v.current.Load(); cur != nil {
		ch <- cur
	}
	context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.watchers, ch)
		close(ch)
	})
	return ch
}

// offer replaces the waiting value in ch. The caller holds mu and so is the only sender:
// the second send cannot find the slot full.
func offer[T any](ch chan *T, value *T) {
	select {
	case <-ch:
	default:
	}
	ch <- value
}

// Notify wakes the reader of a channel with one place. It does not block: a reader that has not taken
// the last notification takes this one with it.
func Notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Pacer spaces the acts of a loop. A single change causes an act immediately, and a burst of
// changes one act for each interval:
//
//	select {
//	case <-changes: pending = true
//	case <-pacer.C:
//	}
//	if pending && pacer.May() {
//		pending = false
//		pacer.Begin(interval)
//		act()
//	}
//
// It is for one goroutine.
type Pacer struct {
	// C fires when May may be called again, after it was false.
	C <-chan time.Time

	end   time.Time // of the interval
	timer *time.Timer
}

// NewPacer returns a Pacer whose first interval has not begun.
func NewPacer() *Pacer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &Pacer{C: timer.C, timer: timer}
}

// Begin begins an interval.
func (p *Pacer) Begin(interval time.Duration) { p.end = time.Now().Add(interval) }

// May reports whether no interval is running. If one is, C fires at its end.
func (p *Pacer) May() bool {
	wait := time.Until(p.end)
	if wait > 0 {
		p.timer.Reset(wait)
	}
	return wait <= 0
}

// At returns a channel that fires at a moment, for a loop whose next act is due then; nil for
// the zero moment.
func At(moment time.Time) <-chan time.Time {
	if moment.IsZero() {
		return nil
	}
	return time.After(time.Until(moment))
}
