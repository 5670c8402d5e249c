package advertise

import "context"

// finished is how an exchange of ours ended.
type finished struct {
	peer  string
	fetch *instance // nil for a comparison
	err   error
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

// startExchanges fills the free places with fetches, then comparisons.
func (c *Catalogue) startExchanges(ctx context.Context) {
	c.startFetches(ctx)
	for len(c.outbound) < maxOutbound {
		peer := c.partners.next()
		if peer == "" {
			return
		}
		if !c.busyWith(peer) {
			c.start(ctx, finished{peer: peer}, c.sync)
		}
	}
}

func (c *Catalogue) start(ctx context.Context, end finished, side func(context.Context, *frames) (string, error)) {
	c.outbound[end.peer] = struct{}{}
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
func (c *Catalogue) finish(f finished) (sooner bool) {
	delete(c.outbound, f.peer)
	if f.fetch != nil {
		c.endFetch(*f.fetch)
		return false
	}
	c.partners.ended(f.err == nil)
	if f.err == nil {
		c.compared.Store(true)
	}
	return f.err != nil
}
