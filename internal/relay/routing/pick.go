package routing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/strategy"
)

// triedSize is how many endpoints a Tried can name: the eight attempts that are the
// most, with room for those passed over.
const triedSize = 16

// Tried are the endpoints that one request must not be sent to again. The zero value
// is empty and ready. It is not for concurrent use, and allocates nothing.
type Tried struct {
	exclusion selection.Exclusion // the same for the balancer
	ids       [triedSize]string   // those tried, then those only passed over
	n         int
	sets      [2][]string // what the strategy is handed
	room      room        // the same, where endpoints have limits
}

// room tells a strategy which endpoints have none for one more request.
type room struct {
	balancer *selection.Balancer
	now      selection.Instant
	worst    selection.Room // that will do
	met      bool           // an endpoint without
}

// Full implements strategy.Request.Full.
func (r *room) Full(e *strategy.Endpoint) bool {
	full := r.balancer.Room(e.ID, r.now) > r.worst
	r.met = r.met || full
	return full
}

// Add notes that the endpoint of p was tried.
func (t *Tried) Add(p selection.Pick) {
	t.exclusion.Add(p)
	t.note(p.ID())
}

func (t *Tried) note(id string) (full bool) {
	if t.n == len(t.ids) {
		return true
	}
	t.ids[t.n] = id
	t.n++
	return false
}

// forget drops what came after the first n: passing over is one pick's affair.
func (t *Tried) forget(n int) {
	clear(t.ids[n:t.n])
	t.n = n
}

// Pick chooses an endpoint for a request that begins now and counts the request as
// begun; the ticket goes back to s.Endpoints. Only a strategy that goes by the
// request's key reads it. An endpoint that was evicted for its failures is chosen
// only when the strategy has nothing else: that is how a deterministic strategy fails
// over. In the same way one that has this relay's share of its slots in flight is
// chosen only when no other has room, and before an evicted one. The error says why
// there is none. It allocates nothing unless the range has changed in this moment.
func (s *Service) Pick(key string, now selection.Instant, tried *Tried) (selection.Pick, error) {
	c := s.choice.Load()
	if c.strategy == nil {
		return s.Endpoints.Pick(now, &tried.exclusion)
	}
	before := tried.n
	p, err := c.pick(s.Endpoints, strategy.Request{Key: key, Now: now}, tried)
	tried.forget(before)
	return p, err
}

func (c *Choice) pick(b *selection.Balancer, r strategy.Request, tried *Tried) (selection.Pick, error) {
	return c.pickWith(b, r, tried, c.strategy.Pick)
}

// pickWith asks the strategy until it names an endpoint that may be used. Those passed
// over stay in tried.
func (c *Choice) pickWith(b *selection.Balancer, r strategy.Request, tried *Tried, ask func(strategy.Request) (*strategy.Endpoint, error)) (selection.Pick, error) {
	before := tried.n
	evicted := c.evicted.Load()
	lastResort := false
	tried.room = room{}
	if b.Limited() {
		tried.room = room{balancer: b, now: r.Now}
		r.Full = &tried.room
	}
	for {
		tried.sets[0], tried.sets[1] = tried.ids[:tried.n], nil
		if evicted != nil && !lastResort {
			tried.sets[1] = *evicted
		}
		r.Excluded = tried.sets[:]
		e, err := ask(r)
		switch {
		case errors.Is(err, strategy.ErrNoMeasurement):
			// Nothing was measured yet, or nothing that is left: what knows no distance
			// serves.
			if preferred := c.preferred.Load(); preferred != nil && len(*preferred) > 0 {
				if p, ok := pickPreferred(b, r.Now, tried, *preferred); ok {
					return p, nil
				}
				return selection.Pick{}, err
			}
			return b.Pick(r.Now, &tried.exclusion)
		case err != nil && tried.room.met && tried.room.worst == selection.HasRoom:
			tried.room.worst, tried.room.met, tried.n = selection.AtLimit, false, before
			continue
		case err != nil:
			full := tried.room.met
			if lastResort || evicted == nil && tried.n == before && !full {
				return selection.Pick{}, orFull(err, full)
			}
			lastResort, tried.n = true, before // an evicted one is better than none
			if before == 0 {
				// Nor is one that has just refused another request. Who was refused there
				// asks no second one of them.
				tried.room.worst, tried.room.met = selection.RefusedLately, false
			}
			continue
		case !lastResort && !b.Usable(e.ID):
			lastResort = tried.note(e.ID)
			continue
		}
		p, err := b.Take(e.ID, r.Now)
		if err == nil {
			return p, nil
		}
		if tried.note(e.ID) { // it has just left the range
			return selection.Pick{}, err
		}
	}
}

// orFull is the error of a pick, or that endpoints are full where that is the reason.
func orFull(err error, full bool) error {
	if full {
		return errFull
	}
	return err
}

var errFull = fmt.Errorf("routing: %w", selection.ErrFull)

// pickPreferred takes the first of the preferred endpoints that was not tried, one
// that is not evicted and has room first.
func pickPreferred(b *selection.Balancer, now selection.Instant, tried *Tried, preferred []string) (p selection.Pick, ok bool) {
	for _, lastResort := range []bool{false, true} {
		for _, id := range preferred {
			usable := b.Usable(id) && b.Room(id, now) == selection.HasRoom
			if slices.Contains(tried.ids[:tried.n], id) || usable == lastResort {
				continue
			}
			if p, err := b.Take(id, now); err == nil {
				return p, true
			}
		}
	}
	return selection.Pick{}, false
}
