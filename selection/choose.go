package selection

import "fmt"

// Chooser chooses the endpoint of a request in place of the draws of [Balancer.Pick]: by a key, by
// order, by distance.
type Chooser interface {
	// Choose returns the ID of an endpoint of the range that x does not exclude, or an error if it
	// has none. With "" the balancer draws, as Pick does. PickBy calls it again if more endpoints
	// may get the request. It must not block.
	Choose(x *Exclusion) (id string, err error)
}

// maxChoices bounds the calls of Choose in one PickBy: an endpoint may fill up, or leave the range,
// between its choice and the request.
const maxChoices = 16

// eligibility is which endpoints a Chooser may choose now.
type eligibility struct {
	table *table // nil outside of PickBy
	now   tick
	// all is true while no endpoint is excluded, which is usual.
	all     bool
	worst   room // the worst that is accepted
	evicted bool // evicted endpoints are accepted
	// full and unusable report that an endpoint was excluded for its room, or its eviction.
	full, unusable bool
}

// Excludes reports whether the endpoint must not get the request now: it is not in the range, was
// tried, is evicted, or has no room. It is for [Chooser]; outside of PickBy it is false.
// No lock, no allocation.
func (x *Exclusion) Excludes(id string) bool {
	c := &x.eligibility
	if c.all || c.table == nil {
		return false
	}
	e := c.table.byID[id]
	switch {
	case e == nil || x.contains(id):
		return true
	case !c.evicted && !e.state.usable():
		c.unusable = true
		return true
	case !c.table.limited:
		return false
	}
	one := e.candidate()
	if one.room(c.now) <= c.worst {
		return false
	}
	c.full = true
	return true
}

// widen accepts more endpoints, and reports whether there may be more: first those whose places
// other balancers may have left free, then evicted ones. fresh is true for a request that was not
// tried anywhere: it may also go to one that has just refused another.
func (c *eligibility) widen(fresh bool) bool {
	switch {
	case c.full && c.worst == hasRoom:
		c.worst, c.full = atLimit, false
	case !c.evicted && (c.full || c.unusable):
		c.evicted = true
		if fresh {
			c.worst, c.full = refusedLately, false
		}
	default:
		return false
	}
	return true
}

// pickBy lets by choose. With a description whose dry run it is, nothing begins.
func (b *core) pickBy(now Instant, x *Exclusion, by Chooser, d *Decision) (ticket, error) {
	t := b.table.Load()
	x.eligibility = eligibility{table: t, now: now.tick(), all: x.count() == 0 && !t.limited && !t.inactive}
	defer func() { x.eligibility = eligibility{} }() // it must not keep the table
	missing := ""
	for range maxChoices {
		id, err := by.Choose(x)
		switch {
		case err == nil && id == "":
			x.eligibility = eligibility{}
			return b.pick(now, x, d)
		case err != nil && x.eligibility.widen(x.count() == 0):
			continue
		case err != nil && x.eligibility.full:
			return ticket{}, errFull
		case err != nil:
			return ticket{}, err
		}
		missing = ""
		if e := t.byID[id]; e == nil {
			missing = id // the Chooser has another range
		} else if !d.real() {
			if most := ownLimit(e); most == 0 || int(e.state.outstanding()) < most {
				d.Winner = Candidate{ID: id}
				return ticket{}, nil
			}
		} else if p, ok := e.take(now); ok {
			return p, nil
		} // else it has just become full
		x.eligibility.all = false
	}
	if missing != "" {
		return ticket{}, notInRange(missing)
	}
	return ticket{}, errFull
}

func notInRange(id string) error {
	return fmt.Errorf("selection: %w: %q is not in the range; choose again from the current range", ErrNoEndpoint, id)
}

func (b *core) take(id string, now Instant) (ticket, error) {
	e := b.table.Load().byID[id]
	if e == nil {
		return ticket{}, notInRange(id)
	}
	p, ok := e.take(now)
	if !ok {
		return ticket{}, errFull
	}
	return p, nil
}

// take begins a request on the endpoint, whatever its state, unless it is at its own limit.
func (e *entry) take(now Instant) (p ticket, ok bool) {
	if !e.state.begin(now.tick(), ownLimit(e)) {
		return ticket{}, false
	}
	p = ticket{state: e.state, entry: e, start: now}
	if e.state.claimProbe(now, true) {
		p.is = probing
	}
	return p, true
}

// usable reports whether the endpoint is active, or half-open and not being tried.
func (s *state) usable() bool {
	switch phase(s.phase.Load()) {
	case active:
		return true
	case halfOpen:
		return s.probing.Load() == 0
	}
	return false
}

func (b *core) usable(id string, now Instant) bool {
	e := b.table.Load().byID[id]
	if e == nil || !e.state.usable() {
		return false
	}
	one := e.candidate()
	return one.room(now.tick()) == hasRoom
}
