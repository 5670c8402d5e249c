package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// loop decides which sessions there should be.
func (c *Client) loop(ctx context.Context) {
	var changed <-chan struct{}
	for {
		if source := c.cfg.Identity; source != nil {
			changed = source.Changed()
		}
		pause := c.step(ctx)
		c.publish()
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// step opens and closes sessions, and returns when to look again.
func (c *Client) step(ctx context.Context) (pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return time.Minute
	}
	certificate, now := c.certificate(), time.Now()
	if c.record != nil && c.signer != certificate {
		// A relay refuses a record of another certificate than that of its session. The catalogue signs
		// it again, and PublishRecord ends the wait.
		return BeatInterval
	}
	wanted, spares := c.wishes()
	open := map[string]*link{}     // by id of its relay: the session that serves
	lonely, outdated := true, true // there is no session, or none of the current certificate
	pause = BeatInterval
	for _, l := range c.inOrder() {
		if l.row == nil {
			continue
		}
		lonely = false
		outdated = outdated && l.key.certificate != certificate
		if l.serves(certificate, now) {
			if open[l.row.Self] = l; !l.until.IsZero() {
				pause = min(pause, l.until.Sub(now))
			}
		}
	}
	if len(wanted) > 0 {
		c.lastRow = c.lastRow[:0]
		for _, w := range wanted {
			c.lastRow = append(c.lastRow, w.addresses...)
		}
	}
	if lonely {
		pause = min(pause, c.askNames(ctx, now))
	} else {
		c.names.next, c.names.err = time.Time{}, nil
	}
	dialling, most := c.dialling()
	if outdated {
		addresses := c.seeds()
		for _, address := range addresses {
			if dialling >= lonelyDials {
				break
			}
			if wait := c.dial(ctx, c.keyOf(address, certificate, now), "", now); wait > 0 {
				pause = min(pause, wait)
			} else {
				dialling++
			}
		}
		return max(pause, 10*time.Millisecond)
	}
	missing := len(wanted) // a spare that is open makes up for a relay that cannot be reached
	c.replaceUnreachable(wanted, spares, open)
	for _, w := range byRows(wanted) {
		if open[w.id] != nil {
			missing--
			continue
		}
		for _, address := range w.addresses {
			if dialling >= most {
				break // the end of a dial brings the next turn
			}
			if wait := c.dial(ctx, c.keyOf(address, certificate, now), w.id, now); wait > 0 {
				pause = min(pause, wait)
			} else {
				dialling++
			}
		}
	}
	pause = min(pause, c.moveOthers(wanted, open, missing == 0, certificate, now))
	return max(pause, 10*time.Millisecond)
}

// moveOthers ends the sessions that others have replaced, and returns when to look again. mu is held.
//
// Open before close: a relay outside of the row keeps its session until all of the row have one, which
// complete reports. The first of them may be cut off from the others: its row is itself alone, and
// without the one that named the others the worker would stay with it. Until all others have the list
// of a relay of the row, they would see no worker.
func (c *Client) moveOthers(wanted map[string]*wish, open map[string]*link, complete bool, certificate [keyBytes]byte, now time.Time) (pause time.Duration) {
	listed := listTime
	for _, l := range c.links {
		if l.row != nil && l.key.certificate == certificate {
			if _, inRow := wanted[l.row.Self]; inRow {
				listed = min(listed, listTime-now.Sub(l.began))
			}
		}
	}
	for _, l := range c.links {
		if l.row == nil {
			continue
		}
		_, inRow := wanted[l.row.Self]
		newer := open[l.row.Self]
		if !inRow && complete && listed <= 0 || newer != nil && !l.serves(certificate, now) && now.Sub(newer.began) >= listTime {
			l.move()
		}
	}
	if listed > 0 {
		return listed
	}
	return BeatInterval
}

// replaceUnreachable adds a spare for each wanted relay that cannot be reached: its row changes only
// when the other relays have seen that it is dead. mu is held.
func (c *Client) replaceUnreachable(wanted map[string]*wish, spares []RowRelay, open map[string]*link) {
	down := 0
	for id, w := range wanted {
		if open[id] == nil && c.down(w) {
			down++
		}
	}
	// Those that are open first: another order of the same spares in another row moves no session.
	slices.SortStableFunc(spares, func(a, b RowRelay) int {
		switch first, second := open[a.ID] != nil, open[b.ID] != nil; {
		case first == second:
			return 0
		case first:
			return -1
		}
		return 1
	})
	for _, relay := range spares {
		if down == 0 {
			return
		}
		if _, already := wanted[relay.ID]; already {
			continue
		}
		if t := c.tries[relay.Address]; t != nil && t.failures > 0 && open[relay.ID] == nil {
			continue
		}
		wanted[relay.ID] = &wish{id: relay.ID, addresses: []string{relay.Address}}
		down--
	}
}

// inOrder returns the sessions in an order that stays. mu is held.
func (c *Client) inOrder() []*link {
	return slices.SortedFunc(maps.Values(c.links), func(a, b *link) int { return strings.Compare(a.key.address, b.key.address) })
}

// askNames looks the names of the seeds up again, whatever their TTL, with growing pauses: all relays
// may have other addresses. It returns when the next lookup is due. mu is held.
func (c *Client) askNames(ctx context.Context, now time.Time) time.Duration {
	switch n := &c.names; {
	case n.asking:
		return BeatInterval
	case n.next.IsZero(): // until then the Finder's Run looks the names up
		n.pause.Reset()
		n.next = now.Add(n.pause.NextBackOff())
	case !n.next.After(now):
		n.asking = true
		c.running.Go(func() {
			err := c.finder.Recheck(ctx, lonelyAnswers)
			if err != nil {
				err = fmt.Errorf("%w: correct --attach or the DNS", err)
			}
			c.mu.Lock()
			n.asking, n.next, n.err = false, time.Now().Add(n.pause.NextBackOff()), err
			c.mu.Unlock()
			c.notify()
		})
		return BeatInterval
	}
	return c.names.next.Sub(now)
}

// seeds returns the addresses to begin with, in random order: those of the last row and the
// configured ones. mu is held.
func (c *Client) seeds() []string {
	out := slices.Clone(c.lastRow)
	for _, addr := range c.finder.Addrs() {
		if text := addr.String(); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// keyOf returns the key of the session that is, or would be, dialled at an address. mu is held.
func (c *Client) keyOf(address string, certificate [keyBytes]byte, now time.Time) linkKey {
	key := linkKey{address: address, certificate: certificate}
	ends := func(l *link) bool { return l != nil && l.row != nil && !l.serves(certificate, now) }
	first := c.links[key]
	key.other = true
	if second := c.links[key]; second != nil {
		key.other = !ends(second)
	} else {
		key.other = ends(first)
	}
	return key
}

// dial begins a session, unless there is one with that key or it is too early; then it returns how
// long to wait. mu is held.
func (c *Client) dial(ctx context.Context, key linkKey, relay string, now time.Time) (wait time.Duration) {
	if _, there := c.links[key]; there {
		return BeatInterval
	}
	if t := c.tries[key.address]; t != nil && t.next.After(now) {
		return t.next.Sub(now)
	}
	l := newLink(key, relay)
	c.links[key] = l
	c.running.Go(func() {
		err := c.serve(ctx, l)
		c.ends(l, err)
	})
	return 0
}

// replaced reports whether a newer session with the same relay has begun: the relay ends the older one
// with the first record of the newer. mu is held.
func (c *Client) replaced(l *link) bool {
	for _, other := range c.links {
		if l.row != nil && other != l && (other.relay == l.row.Self || other.key.address == l.key.address) && !other.until.IsZero() && (other.row == nil || other.began.After(l.began)) {
			return true
		}
	}
	return false
}

// ends records the end of a session.
func (c *Client) ends(l *link, err error) {
	c.mu.Lock()
	delete(c.links, l.key)
	t := c.tries[l.key.address]
	if t == nil {
		t = &tries{}
		c.tries[l.key.address] = t
	}
	reason, level := endFailed, slog.LevelDebug
	var refusal *Refusal
	switch {
	case l.moved.Load() || c.leaving || c.replaced(l):
		reason, *t = endMoved, tries{}
	case errors.As(err, &refusal), errors.Is(err, errForged):
		reason, level = endRefused, slog.LevelWarn
		if refusal == nil {
			reason = endForged
		}
		t.failures++
		t.next = time.Now().Add(refusedPause + rand.N(refusedPause))
	default:
		if l.row != nil {
			reason, level, t.failures = endLost, slog.LevelInfo, 0
		}
		pause := min(longestPause, firstPause<<min(t.failures, 10))
		t.failures++
		t.next = time.Now().Add(pause/2 + rand.N(pause))
	}
	if reason != endMoved {
		c.err = err
	}
	if len(c.tries) > 4*maxRow { // addresses that are in no row any more
		for address, t := range c.tries {
			if time.Since(t.next) > time.Minute {
				delete(c.tries, address)
			}
		}
	}
	left := c.leaving
	c.mu.Unlock()
	close(l.done)
	c.ended.WithLabelValues(reason).Inc()
	if reason != endMoved && !left {
		c.logger.Log(context.Background(), level, "session with a relay ended", "relay", cmp.Or(l.relay, "unknown"), "addr", l.key.address, "reason", reason, "err", err)
	}
	c.notify()
}
