package advertise

import (
	"context"
	"maps"
)

// pendingFetch is a record that gossip told of and that is too large for it.
type pendingFetch struct {
	stamp    stamp
	attempts int
	running  bool
}

// hearHint plans to fetch a record that is too large for gossip.
func (c *Catalogue) hearHint(m mail) {
	c.metrics.receive(hinted)
	if e := c.store.entries[m.from]; e != nil && m.stamp.compare(e.stamp) <= 0 {
		return
	}
	if c.store.fromTheFuture(m.from, c.cfg.Now()) {
		c.metrics.receive("invalid_future_epoch")
		return
	}
	if f := c.fetches[m.from]; f != nil {
		if m.stamp.compare(f.stamp) > 0 {
			f.stamp, f.attempts = m.stamp, 0
		}
		return
	}
	if len(c.fetches) < maxFetches {
		c.fetches[m.from] = &pendingFetch{stamp: m.stamp}
	}
}

// startFetches fills the free places: the owner is asked first, then others.
func (c *Catalogue) startFetches(ctx context.Context) {
	for key, f := range c.fetches {
		if len(c.outbound) >= maxOutbound {
			return
		}
		if f.running {
			continue
		}
		peer := key.id
		if _, alive := c.store.worker(peer); !alive || f.attempts > 0 {
			peer = c.randomMember()
		}
		if peer == "" || peer == c.own.instance.id || c.busyWith(peer) {
			continue
		}
		f.running = true
		c.start(ctx, &finished{peer: peer, fetch: &key}, func(ctx context.Context, fr *frames) (string, error) {
			return c.fetch(ctx, fr, []instance{key})
		})
	}
}

func (c *Catalogue) endFetch(key instance) {
	pending := c.fetches[key]
	pending.running = false
	pending.attempts++
	e := c.store.entries[key]
	if pending.attempts >= fetchAttempts || e != nil && pending.stamp.compare(e.stamp) <= 0 {
		delete(c.fetches, key)
	}
}

// expireFetches gives up what nobody could be asked for.
func (c *Catalogue) expireFetches() {
	maps.DeleteFunc(c.fetches, func(_ instance, f *pendingFetch) bool { return !f.running })
}
