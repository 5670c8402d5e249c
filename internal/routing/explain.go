package routing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

const noteFull = "full"

// Decision describes how a request gets its endpoint.
type Decision struct {
	// Strategy and Origin are those of the Choice.
	Strategy string
	Origin   Origin
	// Key is the request's key, if the strategy uses it.
	Key string
	// Winner is the node that gets the request, empty if none does. Reason is why.
	Winner, Reason string
	// Measure describes the candidates' scores.
	Measure string
	// Candidates are the endpoints that were compared; Range is how many there are.
	Candidates []Candidate
	Range      int
	// Canary is nil if the service has none.
	Canary *CanaryDecision
}

// Candidate is an endpoint that was compared.
type Candidate struct {
	Node, ID, Address string
	Score             float64
	// Parts has the factors of a score of the balancer, otherwise it is nil.
	Parts *selection.Candidate
	// Note is the remark about the candidate, such as its eviction.
	Note string
}

// Explain describes how a pick for a request with the key would go now. If the strategy is
// random, Explain draws separately. Nothing is begun, counted or learnt.
func (s *Service) Explain(key string, now selection.Instant) Decision {
	if canary := s.Route().canary; canary != nil {
		return canary.explained(s, key, now)
	}
	return s.explain(key, now)
}

func (s *Service) explain(key string, now selection.Instant) Decision {
	c := s.Choice()
	if c.strategy == nil {
		d, err := s.Endpoints.Explain(now, nil, nil)
		return s.balancerDecision(c, d, err)
	}
	var last strategy.Decision
	stats := s.Endpoints.Stats(now)
	chosen, err := s.Endpoints.Explain(now, nil, &ordering{choice: c, request: strategy.Request{Key: key, Now: now}, decision: &last, dryRun: true})
	d := s.strategyDecision(c, last, stats)
	s.endDecision(&d, chosen.Winner.ID, err)
	return d
}

// endDecision completes the decision of a strategy with what the balancer made of it: that it has picked
// itself, or found no endpoint with room.
func (s *Service) endDecision(d *Decision, winner string, err error) {
	switch {
	case err != nil && d.Winner != "": // what it chose has no room
		d.Winner, d.Reason = "", err.Error()
	case err == nil && d.Winner == "":
		targets := s.Route().Range
		if i := slices.IndexFunc(targets, func(t *Target) bool { return t.ID == winner }); i >= 0 {
			d.Winner = targets[i].Node
		}
		d.Reason = "nothing was measured yet that could be used (" + d.Reason + "); the balancer picked"
	}
}

// PickExplained is Pick with an explanation. It allocates, so it is only for debugging.
func (s *Service) PickExplained(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], Decision, error) {
	if canary := s.Route().canary; canary != nil {
		return canary.pickExplained(s, key, now, tried)
	}
	return s.pickExplained(key, now, tried)
}

func (s *Service) pickExplained(key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], Decision, error) {
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
	stats := s.Endpoints.Stats(now)
	tried.ordering = ordering{choice: c, request: strategy.Request{Key: key, Now: now}, decision: &last}
	p, err := s.Endpoints.PickBy(now, &tried.exclusion, &tried.ordering)
	d := s.strategyDecision(c, last, stats)
	winner := ""
	if err == nil {
		winner = p.ID()
	}
	s.endDecision(&d, winner, err)
	return p, d, err
}

// strategyDecision converts a strategy's decision into a Decision. stats are those before the pick.
func (s *Service) strategyDecision(c *Choice, d strategy.Decision, stats []selection.EndpointStats) Decision {
	targets := s.Route().Range
	of := Decision{Strategy: d.Strategy, Origin: c.Origin, Reason: d.Rule, Measure: d.Measure, Range: len(targets)}
	if c.Spec.ByKey() {
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
		i := slices.IndexFunc(stats, func(st selection.EndpointStats) bool { return st.ID == each.ID })
		switch {
		case i < 0 || stats[i].Usable:
		case d.Winner != nil && d.Winner.ID == each.ID && stats[i].State == selection.Active: // full, and chosen
		case stats[i].Full:
			each.Note = noteFull
		default:
			each.Note = "evicted for its failures"
		}
		of.Candidates = append(of.Candidates, Candidate{Node: each.Node, ID: each.ID, Address: addressOf(targets, each.ID), Score: each.Score, Note: each.Note})
	}
	return of
}

// balancerDecision converts a decision of the balancer.
func (s *Service) balancerDecision(c *Choice, d selection.Decision, err error) Decision {
	targets := s.Route().Range
	of := Decision{
		Strategy: c.Spec.String(), Origin: c.Origin, Reason: d.Reason, Range: d.Range,
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
		of.Candidates = append(of.Candidates, Candidate{
			Node: node, ID: each.ID, Address: address, Score: each.Score / float64(time.Millisecond), Note: note,
			Parts: &each,
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
