package peering

import (
	"fmt"
	"slices"
	"time"
)

// Table decides which connections are opened and closed. K identifies a far end: services
// that need the same K share a connection.
type Table[K comparable] struct {
	cfg      Config
	now      time.Time
	services map[string]wish[K]
	needs    map[K]need
	links    map[K]*link

	queue    []K            // to be opened, in the order of request
	opening  int            // number of links that are being opened
	retries  map[K]struct{} // failed, waiting for retryAt
	draining map[K]struct{}
	dropped  map[K]struct{} // forgotten without a drain; the next Step lists them in Close
	counts   Counts
}

// wish is what one service needs.
type wish[K comparable] struct{ in, near []K }

// Counts are the events of a table since it was made.
type Counts struct {
	Opened          uint64 // attempts to open that succeeded
	Failed          uint64 // attempts to open that failed
	Lost            uint64 // open connections that broke
	Closed          uint64 // connections closed because no service needed them
	DrainsStarted   uint64
	DrainsCancelled uint64 // connections that were needed again during the drain
	Missing         uint64 // audits: open in the table, but not in reality
	Surplus         uint64 // audits: open in reality, but not in the table
}

// NewTable checks the configuration and returns an empty table.
func NewTable[K comparable](cfg Config) (*Table[K], error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Table[K]{
		cfg: cfg, services: map[string]wish[K]{}, needs: map[K]need{}, links: map[K]*link{},
		retries: map[K]struct{}{}, draining: map[K]struct{}{}, dropped: map[K]struct{}{},
	}, nil
}

// Want sets what a service needs from now on: in, the far ends of its range, which are
// opened, and near, the far ends within slack of the range, which are only kept open. The
// table keeps both slices; the caller must not change them. Two empty slices remove the
// service.
func (t *Table[K]) Want(service string, in, near []K, now time.Time) {
	t.advance(now)
	before, after := t.services[service], wish[K]{in, near}
	if slices.Equal(before.in, in) && slices.Equal(before.near, near) {
		return
	}
	t.services[service] = after
	if len(in)+len(near) == 0 {
		delete(t.services, service)
	}
	t.count(after, 1)
	t.count(before, -1)
	for _, list := range [...][]K{in, near, before.in, before.near} {
		for _, k := range list {
			t.settle(k)
		}
	}
}

func (t *Table[K]) count(w wish[K], by int) {
	add := func(k K, in, near int) {
		n := t.needs[k]
		n.in += in
		n.near += near
		t.needs[k] = n
		if n == (need{}) {
			delete(t.needs, k)
		}
	}
	for _, k := range w.in {
		add(k, by, 0)
	}
	for _, k := range w.near {
		add(k, 0, by)
	}
}

// settle starts, keeps, drains or drops the link to k, according to its need.
func (t *Table[K]) settle(k K) {
	n, l := t.needs[k], t.links[k]
	switch {
	case l == nil && n.in > 0:
		t.links[k] = &link{}
		t.queue = append(t.queue, k)
		delete(t.dropped, k)
	case l == nil:
	case n.in > 0 || l.open && n.near > 0:
		if !l.closesAt.IsZero() {
			l.closesAt = time.Time{}
			delete(t.draining, k)
			t.counts.DrainsCancelled++
		}
	case !l.open:
		t.drop(k)
	case l.closesAt.IsZero():
		l.closesAt = t.now.Add(t.cfg.DrainDelay)
		t.draining[k] = struct{}{}
		t.counts.DrainsStarted++
	}
}

// drop forgets a link that is not open.
func (t *Table[K]) drop(k K) {
	if t.links[k].opening {
		t.opening--
	}
	t.dropped[k] = struct{}{}
	delete(t.retries, k)
	delete(t.links, k)
}

// Actions are what the caller must do now.
type Actions[K comparable] struct {
	Open []K
	// Close lists the far ends that the table has forgotten, open or not: an attempt to
	// open in progress must be cancelled.
	Close []K
	// Next is when Step is due again if no other call comes first; zero for never.
	Next time.Time
}

// Step returns the actions that are due. Its cost is proportional to the number of links
// that are queued, draining and waiting to be tried again, not to those that are open.
func (t *Table[K]) Step(now time.Time) Actions[K] {
	t.advance(now)
	var a Actions[K]
	for k := range t.dropped {
		a.Close = append(a.Close, k)
	}
	clear(t.dropped)
	sooner := func(at time.Time) {
		if a.Next.IsZero() || at.Before(a.Next) {
			a.Next = at
		}
	}
	for k := range t.retries {
		if l := t.links[k]; l.retryAt.After(t.now) {
			sooner(l.retryAt)
		} else {
			delete(t.retries, k)
			t.queue = append(t.queue, k)
		}
	}
	for len(t.queue) > 0 && t.opening < t.cfg.MaxOpening {
		k := t.queue[0]
		t.queue = t.queue[1:]
		l := t.links[k]
		if l == nil || l.opening || l.open {
			continue // dropped, and perhaps wanted again, since it was queued
		}
		if _, later := t.retries[k]; later {
			continue
		}
		l.opening = true
		t.opening++
		a.Open = append(a.Open, k)
	}
	for k := range t.draining {
		l := t.links[k]
		if l.closesAt.After(t.now) {
			sooner(l.closesAt)
			continue
		}
		delete(t.draining, k)
		delete(t.links, k)
		t.counts.Closed++
		a.Close = append(a.Close, k)
	}
	return a
}

// Opened reports that an attempt to open has succeeded.
func (t *Table[K]) Opened(k K, now time.Time) {
	t.advance(now)
	if l := t.links[k]; l != nil && l.opening {
		t.opening--
		t.counts.Opened++
		*l = link{open: true, failures: l.failures, openedAt: t.now}
	}
}

// Failed reports that an attempt to open has failed. The table tries again after a delay.
func (t *Table[K]) Failed(k K, now time.Time) {
	t.advance(now)
	if l := t.links[k]; l != nil && l.opening {
		t.opening--
		t.counts.Failed++
		t.retry(k, l.failures+1)
	}
}

// Lost reports that an open connection broke. A connection in a range is opened again:
// immediately, or after a delay if it broke sooner than RetryDelay after it was opened.
// Otherwise a far end that accepts and closes would cause a tight loop.
func (t *Table[K]) Lost(k K, now time.Time) {
	t.advance(now)
	l := t.links[k]
	if l == nil || !l.open {
		return
	}
	t.counts.Lost++
	delete(t.draining, k)
	lived, failures := t.now.Sub(l.openedAt), l.failures
	*l = link{}
	switch {
	case t.needs[k].in == 0:
		t.drop(k)
	case lived < t.cfg.RetryDelay:
		t.retry(k, failures+1)
	default:
		t.queue = append(t.queue, k)
	}
}

// Renewed reports that a new process runs at a far end. Failures of the old process do not
// count against the new one: a link that waits to be tried again is tried immediately.
func (t *Table[K]) Renewed(k K) {
	if l := t.links[k]; l != nil {
		l.failures = 0
		l.retryAt = time.Time{}
	}
}

func (t *Table[K]) retry(k K, failures int) {
	delay, doublings := t.cfg.MaxRetryDelay, failures-1
	if t.cfg.RetryDelay <= delay>>doublings { // cannot overflow, as the other shift could
		delay = t.cfg.RetryDelay << doublings
	}
	*t.links[k] = link{failures: failures, retryAt: t.now.Add(delay)}
	t.retries[k] = struct{}{}
}

// Audit compares the table with reality: open lists the connections that are really open.
// missing are open in the table only; Audit treats them as lost. surplus are unknown to the
// table; the caller must close them.
func (t *Table[K]) Audit(open map[K]struct{}, now time.Time) (missing, surplus []K) {
	for k, l := range t.links {
		if _, there := open[k]; l.open && !there {
			missing = append(missing, k)
		}
	}
	for k := range open {
		if t.links[k] == nil {
			surplus = append(surplus, k)
		}
	}
	for _, k := range missing {
		t.Lost(k, now)
	}
	t.counts.Missing += uint64(len(missing))
	t.counts.Surplus += uint64(len(surplus))
	return missing, surplus
}

// State returns the state of the link to a far end.
func (t *Table[K]) State(k K) State {
	l := t.links[k]
	switch {
	case l == nil:
		return None
	case !l.closesAt.IsZero():
		return Draining
	case l.open && t.needs[k].in == 0:
		return Spare
	case l.open:
		return Open
	case l.opening:
		return Opening
	default:
		return Waiting
	}
}

// Tried reports whether an attempt to open has ended for every wanted far end, successful
// or not.
func (t *Table[K]) Tried() bool {
	for _, l := range t.links {
		if !l.open && l.failures == 0 {
			return false
		}
	}
	return true
}

// Count returns the number of links in each state.
func (t *Table[K]) Count() map[State]int {
	n := map[State]int{}
	for k := range t.links {
		n[t.State(k)]++
	}
	return n
}

// Counts returns the events since the table was made.
func (t *Table[K]) Counts() Counts { return t.counts }

func (t *Table[K]) advance(now time.Time) {
	if now.After(t.now) {
		t.now = now
	}
}

// State is the state of the connection to one far end.
type State int

// The states of a link.
const (
	None     State = iota // neither wanted nor open
	Waiting               // wanted, waiting for the first or the next attempt
	Opening               // being opened
	Open                  // open and in the range of a service
	Spare                 // open, in no range, within slack of one
	Draining              // open, needed by no service, about to close
)

var stateNames = [...]string{"none", "waiting", "opening", "open", "spare", "draining"}

func (s State) String() string {
	if s >= 0 && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// link is one far end that is wanted or open.
type link struct {
	opening, open bool
	failures      int       // consecutive attempts that failed or broke soon after
	openedAt      time.Time // when an open link was opened
	retryAt       time.Time // when a failed link is tried again
	closesAt      time.Time // when a draining link closes; zero while it is needed
}

// need counts the services that ask for a far end.
type need struct {
	in   int // services with the far end in their range: open it
	near int // services with the far end within slack of their range: keep it open
}
