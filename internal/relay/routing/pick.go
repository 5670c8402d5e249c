package routing

import (
	"errors"

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
// over. The error says why there is none. It allocates nothing unless the range has
// changed in this moment.
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
	for {
		tried.sets[0], tried.sets[1] = tried.ids[:tried.n], nil
		if evicted != nil && !lastResort {
			tried.sets[1] = *evicted
		}
		r.Excluded = tried.sets[:]
		e, err := ask(r)
		switch {
		case errors.Is(err, strategy.ErrNoMeasurement):
			// Nothing was measured yet, or nothing that is left: the balancer knows no
			// distance, but it serves.
			return b.Pick(r.Now, &tried.exclusion)
		case err != nil:
			if lastResort || evicted == nil && tried.n == before {
				return selection.Pick{}, err
			}
			lastResort, tried.n = true, before // an evicted one is better than none
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
