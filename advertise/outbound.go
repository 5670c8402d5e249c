package advertise

import "context"

// finished is an exchange of ours and, once it is received, how it ended.
type finished struct {
	peer  string
	fetch *instance // nil for a comparison
	err   error
	early bool // it began before there was a worker: Run's goroutine says so
}

// busyWith reports whether an exchange of ours with a member is running: there is
// one at a time with each.
func (c *Catalogue) busyWith(id string) bool {
	_, busy := c.outbound[id]
	return busy
}

// randomMember is one that an exchange can begin with now, "" for none.
func (c *Catalogue) randomMember() string {
	if c.members == nil {
		return ""
	}
	return c.partners.choose(c.members.Self(), c.members.Members(), c.busyWith)
}

// startExchanges fills the free places with comparisons, then fetches: hints are
// not signed, and however many come, they must not keep comparisons from running.
func (c *Catalogue) startExchanges(ctx context.Context) {
	for len(c.outbound) < maxOutbound {
		peer := c.partners.next()
		if peer == "" {
			break
		}
		if !c.busyWith(peer) {
			c.start(ctx, &finished{peer: peer}, c.sync)
		}
	}
	c.startFetches(ctx)
}

func (c *Catalogue) start(ctx context.Context, end *finished, side func(context.Context, *frames) (string, error)) {
	c.outbound[end.peer] = end
	c.exchanges.Go(func() {
		end.err = c.open(ctx, end.peer, side)
		select {
		case c.finished <- end:
		case <-c.stopped:
		}
	})
}

// finish reports whether the next comparison is to be planned anew: after one
// that failed it comes sooner.
func (c *Catalogue) finish(f *finished) (sooner bool) {
	delete(c.outbound, f.peer)
	if f.fetch != nil {
		c.endFetch(*f.fetch)
		return false
	}
	c.partners.ended(f.err == nil)
	if f.err == nil && !f.early && !c.compared {
		c.compared, c.dirty = true, true // the next view is settled
	}
	return f.err != nil
}
