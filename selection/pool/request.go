package pool

import (
	"fmt"
	"slices"
	"time"
)

// Request is what a request asks of the pool.
type Request struct {
	// Key, if there is one, makes requests with the same key go to the same primary
	// as long as it keeps its place.
	Key string
	// Exclude are the ids of peers that this request has tried.
	Exclude []string
	// Patience is how long the request waits at most while nobody is connected, and
	// somebody will be. Default, and at most, ConnectTimeout.
	Patience time.Duration
}

// Outcome says how a request ended.
type Outcome uint8

const (
	// Cancelled: nothing is learnt of the peer. What is not reported counts as this.
	Cancelled Outcome = iota
	// Success: the peer answered; its latency counts.
	Success
	// Failure: no answer, or one that says the peer is broken. Its latency never
	// counts: who fails fast must not look fast.
	Failure
	// Shed: the peer is well and busy (429, 503). No failure, no latency.
	Shed
)

// Ticket is a request's place on a connection.
type Ticket struct {
	Link LinkID
	Peer Peer
	// Ready is false while the connection is being opened; the request waits for it.
	Ready bool
}

// Acquire takes a place on a connection: for a known key with the primary it had,
// otherwise with the primary whose turn it is, or the next one that has room, or one
// to which another connection may be opened. Backups are asked when no primary may
// be: there is none, or the request has tried them all. Give the place back with
// Release. Errors wrap one of those of this package.
func (t *Table) Acquire(r Request, now time.Time) (Ticket, error) {
	t.advance(now)
	if len(t.peers) == 0 {
		return Ticket{}, ErrNoPeers
	}
	excluded := func(m *member) bool { return slices.Contains(r.Exclude, m.peer.ID) }
	var bound *peer
	if r.Key != "" {
		if bound = t.bindings.find(r.Key, t.now); bound != nil && !excluded(bound.member) {
			if l := bound.member.ready(t.cfg.Streams); l != nil {
				return t.take(l), nil
			}
			if l := t.grow(bound.member); l != nil {
				return t.take(l), nil
			}
		}
	}
	full := false
	for _, find := range [...]func(*member) *link{
		func(m *member) *link { return m.ready(t.cfg.Streams) },
		t.grow,
	} {
		for i := range t.primaries {
			at := (t.turn + i) % len(t.primaries)
			m := t.primaries[at]
			if excluded(m) {
				continue
			}
			full = true
			if l := find(m); l != nil {
				t.turn = (at + 1) % len(t.primaries)
				if r.Key != "" && bound == nil {
					t.bindings.bind(r.Key, m.peer, t.now)
				}
				return t.take(l), nil
			}
		}
	}
	if full {
		return Ticket{}, t.exhausted()
	}
	return t.acquireElsewhere(excluded)
}

// Bound says which peer a key sticks to, if it does. Asking is no use of the key.
func (t *Table) Bound(key string, now time.Time) (id string, bound bool) {
	if p := t.bindings.peek(key, now); p != nil {
		return p.ID, true
	}
	return "", false
}

// acquireElsewhere is for a request that no primary may carry.
func (t *Table) acquireElsewhere(excluded func(*member) bool) (Ticket, error) {
	for _, m := range t.backups {
		if excluded(m) {
			continue
		}
		if l := m.ready(t.cfg.Streams); l != nil {
			return t.take(l), nil
		}
	}
	waiting := false
	for _, m := range t.joining {
		if excluded(m) {
			continue
		}
		waiting = true
		if l := m.links[0]; l.inFlight < t.cfg.Streams {
			return t.take(l), nil
		}
	}
	switch {
	case waiting:
		return Ticket{}, errNotYet
	case len(t.primaries) > 0:
		return Ticket{}, ErrExcluded
	case t.vacancies() > 0 && len(t.eligible()) > 0:
		return Ticket{}, errNotYet
	}
	return Ticket{}, t.unavailable()
}

func (t *Table) take(l *link) Ticket {
	l.inFlight++
	l.peer.requests++
	return Ticket{Link: l.id, Peer: l.peer.Peer, Ready: l.open}
}

// Report says how a request ended, or as far as its latency goes; at most once for
// each ticket, before its Release. It may evict the peer.
func (t *Table) Report(tk Ticket, o Outcome, latency time.Duration, now time.Time) {
	t.advance(now)
	l := t.links[tk.Link]
	if l == nil {
		return
	}
	h, m := &l.peer.health, l.peer.member
	judge := func(verdict func(*member) (Reason, string)) {
		if m != nil && m.role != NoRole {
			t.judge(m, verdict)
		}
	}
	switch o {
	case Success:
		h.success(max(latency, 0), t.cfg.Alpha, t.now)
		judge(t.slow)
	case Failure:
		l.peer.failures++
		h.failure(t.now)
		judge(t.failing)
	case Shed:
		h.shed(t.now)
	}
}

// Release gives a place on a connection back.
func (t *Table) Release(tk Ticket, now time.Time) {
	t.advance(now)
	l := t.links[tk.Link]
	if l == nil {
		return // it was never opened
	}
	l.inFlight--
	switch {
	case l.inFlight > 0:
	case l.member == nil:
		t.closes = append(t.closes, l.id)
		t.drop(l)
	default:
		l.idleAt = t.now
		t.idled = t.idled || len(l.member.links) > 1
	}
}

// judge evicts a member if its health demands it and others can take over.
func (t *Table) judge(m *member, verdict func(*member) (Reason, string)) {
	if why, detail := verdict(m); why != "" && t.replaceable(m) {
		t.evict(m, why, detail)
	}
}

// replaceable says whether somebody else is connected.
func (t *Table) replaceable(m *member) bool {
	for other := range t.members() {
		if other != m && other.connected() {
			return true
		}
	}
	return false
}

// failing says why a member's failures should cost it its place, or "".
//
// Failures in a row count only while the others are well: where one request in ten
// fails everywhere, four in a row happen to everybody. The share of failures is
// judged by its lower confidence bound, since that of a few dozen requests exceeds
// 5 % by chance too often; and not when the others fail about as much.
func (t *Table) failing(m *member) (Reason, string) {
	var failures, requests float64
	for other := range t.members() {
		if h := &other.peer.health; other != m {
			h.count(0, 0, t.now)
			failures += h.failures
			requests += h.requests
		}
	}
	others := failures / max(requests, 1)
	h, threshold := &m.peer.health, t.cfg.ErrorRateThreshold
	if h.consecutive > t.cfg.ConsecutiveFailures && others < threshold {
		return ConsecutiveFailures, fmt.Sprintf("%d consecutive failures, allowed are %d", h.consecutive, t.cfg.ConsecutiveFailures)
	}
	if h.requests < minRequests {
		return "", ""
	}
	share := h.failures / h.requests
	panicking := others > threshold && others > share/3
	if panicking || wilsonLowerBound(h.failures, h.requests) <= threshold {
		return "", ""
	}
	return ErrorRate, fmt.Sprintf("%.0f%% of %.0f recent requests failed, which is surely more than %.3g%%", 100*share, h.requests, 100*threshold)
}

// slow says why a member's latency should cost it its place, or "". It is asked
// when the average and the percentiles are fresh. Half of the last ten requests
// must have been slow, too: a single long one is in the average for a while.
func (t *Table) slow(m *member) (Reason, string) {
	h := &m.peer.health
	limit := func(baseline time.Duration) bool {
		return float64(h.latency) > t.cfg.LatencyMultiplier*float64(baseline)
	}
	if h.samples%latencyStep != 0 || !limit(t.cfg.BaselineLatency) {
		return "", ""
	}
	l := t.latencies()
	baseline, known := l.baseline(m.peer)
	if !known || !limit(baseline) || h.lastMedian() <= baseline {
		return "", ""
	}
	return Latency, fmt.Sprintf("average latency %v, allowed are %.3g times %v, the typical 99th percentile of the others",
		h.latency.Round(time.Microsecond), t.cfg.LatencyMultiplier, baseline.Round(time.Microsecond))
}
