package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// triedSize is how many endpoints a Tried can hold: the at most eight attempts, and some
// that were skipped.
const triedSize = 16

// Tried holds the endpoints that one request must not be sent to again. The zero value is
// empty and ready. It is not for concurrent use, and allocates nothing.
type Tried struct {
	// Session is true if the request opens a session: then the balancer counts sessions and
	// does not compare latencies. Strategies pick as for every request.
	Session bool

	canary canaryGroup // of the request, if its service has a canary

	exclusion selection.Exclusion // the same for the balancer
	ids       [triedSize]string   // those tried, then those only skipped
	n         int
	sets      [2][]string // the exclusions for the strategy
	room      room        // the full endpoints for the strategy, if endpoints have limits
}

// room reports to a strategy which endpoints have no room for one more request.
type room struct {
	balancer *selection.Balancer[*Target]
	now      selection.Instant
	worst    selection.Room // the worst that is still accepted
	found    bool           // an endpoint without room was found
}

// Full implements strategy.Request.Full.
func (r *room) Full(e *strategy.Endpoint) bool {
	full := r.balancer.Room(e.ID, r.now) > r.worst
	r.found = r.found || full
	return full
}

// Add records that the endpoint of p was tried.
func (t *Tried) Add(p selection.Pick[*Target]) {
	p.AddTo(&t.exclusion)
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

// forget drops the entries after the first n: skipped endpoints concern only one pick.
func (t *Tried) forget(n int) {
	clear(t.ids[n:t.n])
	t.n = n
}

// Pick chooses an endpoint for a request that begins now and counts the request as begun;
// the ticket must be returned to s.Endpoints. Only a strategy by key reads key. An
// endpoint that was evicted because of its failures is chosen only if the strategy has no
// other: in this way a deterministic strategy fails over. Likewise an endpoint that
// has this relay's share of its slots in flight is chosen only if no other has room, and
// before an evicted one. The error contains the reason that there is none. Pick allocates
// nothing unless the range has just changed.
func (s *Service) Pick(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	if canary := s.Route().canary; canary != nil {
		return canary.pick(s, key, now, tried)
	}
	return s.pick(key, now, tried)
}

func (s *Service) pick(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	c := s.choice.Load()
	if c.strategy == nil {
		if tried.Session {
			return s.Endpoints.PickSession(now, &tried.exclusion, nil)
		}
		return s.Endpoints.Pick(now, &tried.exclusion)
	}
	before := tried.n
	p, err := c.pick(s.Endpoints, strategy.Request{Key: key, Now: now}, tried)
	tried.forget(before)
	return p, err
}

func (c *Choice) pick(b *selection.Balancer[*Target], r strategy.Request, tried *Tried) (selection.Pick[*Target], error) {
	return c.pickWith(b, r, tried, c.strategy.Pick)
}

// pickWith asks the strategy until it names an endpoint that may be used. Skipped
// endpoints stay in tried.
func (c *Choice) pickWith(b *selection.Balancer[*Target], r strategy.Request, tried *Tried, ask func(strategy.Request) (*strategy.Endpoint, error)) (selection.Pick[*Target], error) {
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
			// Nothing was measured yet, or nothing of the endpoints that are left, so something
			// that needs no distances picks.
			if preferred := c.preferred.Load(); preferred != nil && len(*preferred) > 0 {
				if p, ok := pickPreferred(b, r.Now, tried, *preferred); ok {
					return p, nil
				}
				return selection.Pick[*Target]{}, err
			}
			return b.Pick(r.Now, &tried.exclusion)
		case err != nil && tried.room.found && tried.room.worst == selection.HasRoom:
			tried.room.worst, tried.room.found, tried.n = selection.AtLimit, false, before
			continue
		case err != nil:
			full := tried.room.found
			if lastResort || evicted == nil && tried.n == before && !full {
				return selection.Pick[*Target]{}, orFull(err, full)
			}
			lastResort, tried.n = true, before // an evicted endpoint is better than none
			if before == 0 {
				// So is one that has just refused another request. A request that was refused
				// there does not try a second such endpoint.
				tried.room.worst, tried.room.found = selection.RefusedLately, false
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
		if tried.note(e.ID) { // the endpoint has just left the range
			return selection.Pick[*Target]{}, err
		}
	}
}

// orFull returns errFull if endpoints without room are the reason, else err.
func orFull(err error, full bool) error {
	if full {
		return errFull
	}
	return err
}

var errFull = fmt.Errorf("routing: %w", selection.ErrFull)

// pickPreferred takes the first of the preferred endpoints that was not tried; those that
// are not evicted and have room come first.
func pickPreferred(b *selection.Balancer[*Target], now selection.Instant, tried *Tried, preferred []string) (p selection.Pick[*Target], ok bool) {
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
	return selection.Pick[*Target]{}, false
}

const noteFull = "full"

// Explain describes how a pick for a request with the key would go now. If the strategy is
// random, Explain draws separately. Nothing is begun, counted or learnt.
func (s *Service) Explain(key string, now selection.Instant) api.Decision {
	if canary := s.Route().canary; canary != nil {
		return canary.explained(s, key, now)
	}
	return s.explain(key, now)
}

func (s *Service) explain(key string, now selection.Instant) api.Decision {
	c := s.Choice()
	if c.strategy == nil {
		d, err := s.Endpoints.Explain(now, nil)
		return s.balancerDecision(c, d, err)
	}
	var out []string
	for _, st := range s.Endpoints.Stats(now) {
		if !s.Endpoints.Usable(st.ID) || s.Endpoints.Room(st.ID, now) != selection.HasRoom {
			out = append(out, st.ID)
		}
	}
	d := c.strategy.Explain(strategy.Request{Key: key, Now: now, Excluded: [][]string{out}})
	if d.Err != nil && len(out) > 0 { // as in Pick: an evicted endpoint is better than none
		d = c.strategy.Explain(strategy.Request{Key: key, Now: now})
	}
	return s.strategyDecision(c, d, judged{out, now})
}

// judged are the endpoints that a strategy skipped or used as a last resort, and the time
// of the pick.
type judged struct {
	out []string
	at  selection.Instant
}

// PickExplained is Pick with an explanation. It allocates, so it is only for debugging.
func (s *Service) PickExplained(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], api.Decision, error) {
	if canary := s.Route().canary; canary != nil {
		return canary.pickExplained(s, key, now, tried)
	}
	return s.pickExplained(key, now, tried)
}

func (s *Service) pickExplained(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], api.Decision, error) {
	c := s.Choice()
	if c.strategy == nil {
		var d selection.Decision
		if !tried.Session {
			p, err := s.Endpoints.PickExplained(now, &tried.exclusion, &d)
			return p, s.balancerDecision(c, d, err), err
		}
		p, err := s.Endpoints.PickSession(now, &tried.exclusion, &d)
		of := s.balancerDecision(c, d, err)
		of.Measure = "requests in flight for the weight; the fewest win"
		return p, of, err
	}
	var last strategy.Decision
	before := tried.n
	p, err := c.pickWith(s.Endpoints, strategy.Request{Key: key, Now: now}, tried, func(r strategy.Request) (*strategy.Endpoint, error) {
		last = c.strategy.PickExplained(r)
		return last.Winner, last.Err
	})
	out := slices.Clone(tried.ids[before:tried.n])
	tried.forget(before)
	if evicted := c.evicted.Load(); evicted != nil {
		out = append(out, *evicted...)
	}
	d := s.strategyDecision(c, last, judged{out, now})
	if err == nil && last.Winner == nil {
		d.Winner = p.Value().Node
		d.Reason = "nothing was measured yet that could be used (" + d.Reason + "); the balancer picked"
	}
	return p, d, err
}

// strategyDecision converts a strategy's decision into a Decision.
func (s *Service) strategyDecision(c *Choice, d strategy.Decision, over judged) api.Decision {
	targets := s.Route().Range
	of := api.Decision{Strategy: d.Strategy, Origin: c.Origin, Reason: d.Rule, Measure: d.Measure, Candidates: []api.Candidate{}, Range: len(targets)}
	if c.UsesKey() {
		if of.Key = d.Key; of.Key == "" {
			of.Reason = "the request has no key: it may go anywhere; " + d.Rule
		}
	}
	if d.Err != nil {
		of.Reason = d.Err.Error()
	}
	if d.Winner != nil {
		of.Winner = d.Winner.Node
	}
	for _, each := range d.Candidates {
		switch {
		case d.Winner != nil && d.Winner.ID == each.ID && s.Endpoints.Usable(each.ID): // full now, because of this request
		case s.Endpoints.Room(each.ID, over.at) != selection.HasRoom:
			each.Note = noteFull
		case slices.Contains(over.out, each.ID):
			each.Note = "evicted for its failures"
		}
		of.Candidates = append(of.Candidates, api.Candidate{Node: each.Node, ID: each.ID, Address: addressOf(targets, each.ID), Score: each.Score, Note: each.Note})
	}
	return of
}

// balancerDecision converts a decision of the balancer.
func (s *Service) balancerDecision(c *Choice, d selection.Decision, err error) api.Decision {
	targets := s.Route().Range
	of := api.Decision{
		Strategy: c.Spec.String(), Origin: c.Origin, Reason: d.Reason, Range: d.Range, Candidates: []api.Candidate{},
		Measure: "expected cost in ms: latency · (queue + headroom + 1) / success² / ramp; the lowest wins",
	}
	add := func(each selection.Candidate, note string) {
		if each.Full {
			note = strings.TrimPrefix(note+", "+noteFull, ", ")
		}
		i := slices.IndexFunc(targets, func(t *Target) bool { return t.ID == each.ID })
		node, address := each.ID, ""
		if i >= 0 {
			node, address = targets[i].Node, targets[i].Address
		}
		of.Candidates = append(of.Candidates, api.Candidate{
			Node: node, ID: each.ID, Address: address, Score: each.Score / float64(time.Millisecond), Note: note,
			Parts: &api.ScoreParts{LatencyMs: float64(each.Latency) / float64(time.Millisecond), Queue: each.Queue, Headroom: each.Headroom, Success: each.Success, Ramp: each.Ramp},
		})
	}
	for i, pair := range d.Pairs {
		note := fmt.Sprintf("pair %d", i+1)
		if pair.Redrawn {
			note += fmt.Sprintf(", drawn again: recent winners scored %.3g", d.RunningWinner/float64(time.Millisecond))
		}
		add(pair.First, note)
		add(pair.Second, note)
	}
	if err != nil {
		return of
	}
	if len(d.Pairs) == 0 {
		add(d.Winner, "")
	}
	for _, each := range of.Candidates { // people know nodes and not instances
		of.Reason = strings.ReplaceAll(of.Reason, each.ID, each.Node)
	}
	of.Winner = d.Winner.ID
	if i := slices.IndexFunc(targets, func(t *Target) bool { return t.ID == d.Winner.ID }); i >= 0 {
		of.Winner = targets[i].Node
	}
	return of
}

func addressOf(targets []*Target, id string) string {
	if i := slices.IndexFunc(targets, func(t *Target) bool { return t.ID == id }); i >= 0 {
		return targets[i].Address
	}
	return ""
}
