package handshake

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

// ReasonPace is why a connection was closed: its source began more handshakes than it may.
const ReasonPace = "too_fast_from_source"

const (
	// perProcessor is how many handshakes a second one source may begin for each processor of this
	// process. A handshake with a certificate at both ends takes about a millisecond, so those
	// of one source take about an eighth of the processors.
	perProcessor = 125
	// paceBurst is how long a source may have been silent to have that many handshakes free, and
	// paceWait how long one beyond waits for its turn before it is refused.
	paceBurst, paceWait = 2 * time.Second, time.Second
	// paceSources is with how many sources those that have their whole burst again are removed.
	paceSources = 1024
)

// ErrPace is the error of a connection whose source began more handshakes than it may.
var ErrPace = errors.New("its address begins more TLS handshakes per second than one address may: it should keep its connections")

// Pace bounds how many TLS handshakes a second one source begins, because each takes much more of the
// processors than it costs the other end to begin another. PendingConfig defines what one source is.
//
// It is safe for concurrent use.
type Pace struct {
	interval time.Duration // between two handshakes of one source

	mu sync.Mutex
	// next is for each source when its following handshake would begin if all were spaced by interval
	// (GCRA). One in the past has no effect.
	next  map[netip.Prefix]time.Time
	sweep time.Time // not before
}

// NewPace returns the pace for the processors of this process.
func NewPace() *Pace {
	return &Pace{interval: time.Second / time.Duration(perProcessor*runtime.GOMAXPROCS(0)), next: map[netip.Prefix]time.Time{}}
}

// Wait returns when a handshake with the other end may begin: immediately within the burst. It returns
// ErrPace if too many of the source wait, or the error of ctx.
func (p *Pace) Wait(ctx context.Context, remote net.Addr) error {
	delay, ok := p.reserve(originOf(remote), time.Now())
	if !ok {
		return ErrPace
	}
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Return gives back what Wait took: the handshake was that of a peer that may connect as often as it
// needs.
func (p *Pace) Return(remote net.Addr) {
	source := originOf(remote)
	p.mu.Lock()
	defer p.mu.Unlock()
	if next, known := p.next[source]; known {
		p.next[source] = next.Add(-p.interval)
	}
}

// reserve takes the next place of a source and returns how long it is until then.
func (p *Pace) reserve(source netip.Prefix, now time.Time) (delay time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.next) >= paceSources && now.After(p.sweep) {
		for s, next := range p.next {
			if !next.After(now) {
				delete(p.next, s)
			}
		}
		p.sweep = now.Add(paceBurst)
	}
	next := p.next[source]
	if next.Before(now) {
		next = now
	}
	if delay = next.Sub(now) - paceBurst; delay > paceWait {
		return 0, false
	}
	p.next[source] = next.Add(p.interval)
	return delay, true
}
