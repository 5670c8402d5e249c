package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

const (
	// minTTL replaces a TTL of 0: it protects the server from a burst. It is also the shortest
	// pause between two refreshes of Finder.Run.
	minTTL = time.Second
	// maxEntries limits the cache, because names of SRV targets come from the network.
	maxEntries = 1024
	// maxIdle is how long an entry without lookups is kept, including its stale answer.
	maxIdle = 24 * time.Hour
)

// question is the key of an entry.
type question struct {
	name    string
	service bool // SRV, else A and AAAA
}

// answer is not changed after it has been stored in an entry.
type answer struct {
	addrs   []netip.Addr
	records []record
	// along are the targets of SRV records whose addresses were in the same answer.
	along map[string]bool
	// failed are the address families that were not answered, while the other one was.
	failed families
	// serial grows with every answer from a server or the hosts file, so that one answer seen
	// twice is not counted twice.
	serial uint64
}

// resolution is the result of a lookup outside the cache.
type resolution struct {
	answer answer
	// ttl is how long the answer or the failure is valid; for a failure, 0 means that the
	// server did not specify it.
	ttl   time.Duration
	drops []drop
	err   error
}

// entry is the cached state of one question. Resolver.mu guards it.
type entry struct {
	answer  *answer // nil until the first successful lookup
	expires time.Time

	failure     error // nil after a success
	failedUntil time.Time

	used     time.Time
	flight   *flight // the query in flight
	changes  changes
	staleLog bool   // it was logged that this answer is stale
	fluxLog  bool   // it was logged that this name changes too often
	dropLog  string // the last logged text about dropped addresses
}

// flight is one query that several callers wait for. Its fields other than done are set before done
// is closed.
type flight struct {
	done      chan struct{}
	found     lookup
	err       error
	abandoned bool // the caller that made the query was cancelled
}

// lookup is the result of a lookup through the cache.
type lookup struct {
	answer *answer
	stale  error // why the answer is old; nil if it is not
	// until is when the question must be looked up again, also after a failure.
	until time.Time
}

// CacheStats are statistics of a Resolver's cache.
type CacheStats struct {
	// Positive and Negative are the names with a valid answer and with a valid failure;
	// Pending are those with a query in flight.
	Positive, Negative, Pending int
	// Hits were answered from the cache, NegativeHits with a cached failure, Misses with a
	// query, Shared by another caller's query. Stale counts old answers that were served
	// because a new lookup failed.
	Hits, NegativeHits, Misses, Shared, Stale uint64
}

// Stats returns the statistics of the cache.
func (r *Resolver) Stats() CacheStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	stats := r.stats
	for _, e := range r.entries {
		if e.answer != nil && now.Before(e.expires) {
			stats.Positive++
		}
		if e.failure != nil && now.Before(e.failedUntil) {
			stats.Negative++
		}
		if e.flight != nil {
			stats.Pending++
		}
	}
	return stats
}

// Invalidate removes everything cached about a name: answers, failures, stale answers and
// its history of changes. The result of a query in flight is not cached.
func (r *Resolver) Invalidate(name string) {
	name, err := checkName(name)
	if err != nil {
		return // an invalid name is never cached
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bare := strings.TrimSuffix(name, ".")
	for _, form := range []string{bare, bare + "."} { // SRV targets are cached with the dot
		delete(r.entries, question{name: form})
		delete(r.entries, question{name: form, service: true})
	}
}

// cached answers from the cache, or with resolve. Only one query per question is in flight
// at a time. The query runs in the goroutine of the first caller, so no other goroutine is
// needed; if that caller is cancelled, one of the others repeats the query.
func (r *Resolver) cached(ctx context.Context, q question, mode Mode, resolve func(context.Context) resolution) (lookup, error) {
	for shared := false; ; {
		r.mu.Lock()
		e := r.entryOf(q)
		if f := e.flight; f != nil {
			if !shared {
				r.stats.Shared++
				shared = true
			}
			r.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
				return lookup{}, errGaveUp(ctx, q.name)
			}
			if f.abandoned {
				continue
			}
			return f.found, f.err
		}
		if mode != SkipCache {
			if found, err, ok := r.remembered(e, q); ok {
				r.mu.Unlock()
				return found, err
			}
		}
		f := &flight{done: make(chan struct{})}
		e.flight = f
		r.stats.Misses++
		r.mu.Unlock()

		started := time.Now()
		res := resolve(ctx)
		if res.err != nil && ctx.Err() != nil {
			r.mu.Lock()
			e.flight, f.abandoned = nil, true
			r.mu.Unlock()
			close(f.done)
			return lookup{}, errGaveUp(ctx, q.name)
		}
		r.metrics.duration.Observe(time.Since(started).Seconds())
		r.metrics.lookups.WithLabelValues(resultOf(res.err)).Inc()
		f.found, f.err = r.settle(e, q, res)
		r.mu.Lock()
		e.flight = nil
		r.mu.Unlock()
		close(f.done)
		return f.found, f.err
	}
}

func errGaveUp(ctx context.Context, name string) error {
	return fmt.Errorf("look up %q: %w", name, context.Cause(ctx))
}

// entryOf returns the entry of a question, a new one if there is none. The caller holds mu.
func (r *Resolver) entryOf(q question) *entry {
	now := r.cfg.Now()
	e := r.entries[q]
	if e == nil {
		r.evict(now)
		e = &entry{}
		r.entries[q] = e
	}
	e.used = now
	return e
}

// evict removes an entry if the cache is full. The caller holds mu.
func (r *Resolver) evict(now time.Time) {
	var oldest question
	var since time.Time
	for q, e := range r.entries {
		if now.Sub(e.used) > maxIdle {
			delete(r.entries, q)
		} else if since.IsZero() || e.used.Before(since) {
			oldest, since = q, e.used
		}
	}
	if len(r.entries) >= maxEntries {
		delete(r.entries, oldest)
	}
}

// remembered answers from the entry alone, if possible. The caller holds mu.
func (r *Resolver) remembered(e *entry, q question) (found lookup, err error, ok bool) {
	now := r.cfg.Now()
	if e.failure != nil && now.Before(e.failedUntil) {
		r.stats.NegativeHits++
		r.metrics.hits.WithLabelValues(hitNegative).Inc()
		r.metrics.lookups.WithLabelValues(resultNegative).Inc()
		failure := fmt.Errorf("cached failure: %w", e.failure)
		if e.answer != nil {
			r.stats.Stale++
			r.metrics.hits.WithLabelValues(hitStale).Inc()
			return lookup{answer: e.answer, stale: failure, until: e.failedUntil}, nil, true
		}
		return lookup{until: e.failedUntil}, fmt.Errorf("look up %q: %w", q.name, failure), true
	}
	if e.answer != nil && e.failure == nil && now.Before(e.expires) {
		r.stats.Hits++
		r.metrics.hits.WithLabelValues(hitPositive).Inc()
		return lookup{answer: e.answer, until: e.expires}, nil, true
	}
	return lookup{}, nil, false
}

// settle stores the result of a query and returns the answer for its callers. Log lines are written
// after mu is released, because a logger may be slow.
func (r *Resolver) settle(e *entry, q question, res resolution) (lookup, error) {
	var say []func()
	defer func() {
		for _, line := range say {
			line()
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	for _, d := range res.drops {
		r.metrics.dropped.WithLabelValues(d.reason).Inc()
	}
	if text := r.rules.describe(res.drops); text != e.dropLog {
		e.dropLog = text
		if text != "" {
			say = append(say, func() {
				r.cfg.Logger.Warn("addresses in a DNS answer break a rule", "name", q.name, "addresses", text, "used", r.cfg.ReportOnly)
			})
		}
	}
	if res.err == nil && !q.service && res.answer.failed == 0 && !r.cfg.IgnoreChanges {
		r.observe(e, q, &res, now, &say)
	}

	if res.err != nil {
		ttl := r.cfg.NegativeTTL
		if res.ttl > 0 {
			ttl = min(ttl, res.ttl)
		}
		e.failure, e.failedUntil = res.err, now.Add(ttl)
		if e.answer == nil {
			return lookup{until: e.failedUntil}, fmt.Errorf("look up %q: %w", q.name, res.err)
		}
		r.stats.Stale++
		r.metrics.hits.WithLabelValues(hitStale).Inc()
		if !e.staleLog {
			e.staleLog = true
			say = append(say, func() {
				r.cfg.Logger.Warn("a name does not resolve any more: its last answer stays in use", "name", q.name, "err", res.err)
			})
		}
		return lookup{answer: e.answer, stale: res.err, until: e.failedUntil}, nil
	}

	if e.staleLog {
		e.staleLog = false
		say = append(say, func() { r.cfg.Logger.Info("a name resolves again", "name", q.name) })
	}
	r.serial++
	a := res.answer
	a.serial = r.serial
	ttl := min(max(res.ttl, minTTL), r.cfg.MaxTTL)
	if a.failed != 0 {
		ttl = min(ttl, r.cfg.NegativeTTL)
	}
	e.answer, e.expires = &a, now.Add(ttl)
	e.failure = nil
	return lookup{answer: e.answer, until: e.expires}, nil
}

// observe counts changes of a name's set of addresses. With RejectFlux it turns an answer
// that changes too often into a failure. The caller holds mu.
func (r *Resolver) observe(e *entry, q question, res *resolution, now time.Time, say *[]func()) {
	changed, tooOften := e.changes.see(res.answer.addrs, now, fluxLimits{most: r.cfg.MaxChanges, window: r.cfg.ChangeWindow})
	if changed {
		r.metrics.changes.Inc()
	}
	if tooOften && !e.fluxLog {
		*say = append(*say, func() {
			r.cfg.Logger.Warn("the addresses of a name change too often", "name", q.name, "changes", r.cfg.MaxChanges, "window", r.cfg.ChangeWindow, "rejected", r.cfg.RejectFlux)
		})
	}
	e.fluxLog = tooOften
	if !tooOften || !r.cfg.RejectFlux || e.answer != nil && sameSet(res.answer.addrs, e.answer.addrs) {
		return
	}
	r.metrics.dropped.WithLabelValues(dropFlux).Add(float64(len(res.answer.addrs)))
	res.ttl = 0 // the TTL of the records does not apply to a refusal
	res.err = fmt.Errorf("its addresses changed more than %d times within %v: %v refused", r.cfg.MaxChanges, r.cfg.ChangeWindow, res.answer.addrs)
}
