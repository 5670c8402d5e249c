package pool

import (
	"errors"
	"fmt"
	"time"
)

// What the errors of Acquire wrap.
var (
	// ErrNoPeers: there is nobody to connect to.
	ErrNoPeers = errors.New("pool: no peers: name seeds that resolve, or wait for members to join")
	// ErrExhausted: every connection is full and no more may be opened.
	ErrExhausted = errors.New("connection pool exhausted")
	// ErrUnavailable: there are peers, but none is connected.
	ErrUnavailable = errors.New("pool: no peer is connected")
	// ErrExcluded: the request has tried every peer that is connected.
	ErrExcluded = errors.New("pool: every connected peer is excluded by this request; return its last error")
	// ErrClosed: Run has ended.
	ErrClosed = errors.New("pool: closed; requests need a pool whose Run has not ended")

	// errNotYet: wait until something changes.
	errNotYet = errors.New("pool: not connected yet")
)

func (t *Table) exhausted() error {
	return fmt.Errorf("%w (%d connections, at most %d per peer and %d in total, %d requests each): answer with overload, or raise MaxPerPeer, MaxTotal or Streams",
		ErrExhausted, len(t.links), t.cfg.MaxPerPeer, t.cfg.MaxTotal, t.cfg.Streams)
}

// unavailable names the peer that will be tried first.
func (t *Table) unavailable() error {
	if len(t.barred) == 0 {
		return ErrUnavailable
	}
	next := t.barred[0]
	for _, p := range t.barred {
		if p.barredUntil.Before(next.barredUntil) {
			next = p
		}
	}
	return fmt.Errorf("%w: all %d failed; %s (%s) is tried again in %v: see that it runs and can be reached",
		ErrUnavailable, len(t.peers), next.ID, next.reason, next.barredUntil.Sub(t.now).Round(time.Millisecond))
}
