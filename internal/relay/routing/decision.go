package routing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/strategy"
)

// Decision tells how a request gets its endpoint, for people.
type Decision struct {
	// Strategy and Origin are the choice's.
	Strategy string `json:"strategy"`
	Origin   Origin `json:"origin"`
	// Key is the request's, when the strategy goes by it.
	Key string `json:"key,omitempty"`
	// Winner is the node that gets the request; empty when nobody does.
	Winner string `json:"winner"`
	// Reason is why, or why nobody.
	Reason string `json:"reason"`
	// Measure says what the candidates' scores are.
	Measure string `json:"measure"`
	// Candidates are the endpoints looked at, Range is how many there are.
	Candidates []Candidate `json:"candidates"`
	Range      int         `json:"range"`
}

const noteFull = "full"

// Candidate is one endpoint that was looked at.
type Candidate struct {
	Node    string  `json:"node"`
	ID      string  `json:"id"`
	Address string  `json:"address"`
	Score   float64 `json:"score"`
	// Parts are what a score of the balancer is made of.
	Parts *ScoreParts `json:"parts,omitempty"`
	// Note says what became of the candidate.
	Note string `json:"note,omitempty"`
}

// ScoreParts make score = latency · (queue + 1) / success² / ramp.
type ScoreParts struct {
	LatencyMs float64 `json:"latency_ms"`
	Queue     float64 `json:"queue"`
	Success   float64 `json:"success"`
	Ramp      float64 `json:"ramp"`
}

// Explain tells how a pick for a request with the key would go now. Where chance takes
// part it is a pick of its own. Nothing is begun, counted or learnt.
func (s *Service) Explain(key string, now selection.Instant) Decision {
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
	if d.Err != nil && len(out) > 0 { // as in Pick: an evicted one is better than none
		d = c.strategy.Explain(strategy.Request{Key: key, Now: now})
	}
	return s.strategyDecision(c, d, judged{out, now})
}

// judged are the endpoints that a strategy passed over, or took as a last resort, when
// it was asked at that time.
type judged struct {
	out []string
	at  selection.Instant
}

// PickExplained is Pick and tells how it went. It allocates: it is for debugging.
func (s *Service) PickExplained(key string, now selection.Instant, tried *Tried) (selection.Pick, Decision, error) {
	c := s.Choice()
	if c.strategy == nil {
		var d selection.Decision
		p, err := s.Endpoints.PickExplained(now, &tried.exclusion, &d)
		return p, s.balancerDecision(c, d, err), err
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
		d.Winner = p.Value().(*Target).Node
		d.Reason = "nothing was measured yet that could be used (" + d.Reason + "); the balancer picked"
	}
	return p, d, err
}

// strategyDecision puts a strategy's decision into the words of this package.
func (s *Service) strategyDecision(c *Choice, d strategy.Decision, over judged) Decision {
	targets := s.Route().Range
	of := Decision{Strategy: d.Strategy, Origin: c.Origin, Reason: d.Rule, Measure: d.Measure, Candidates: []Candidate{}, Range: len(targets)}
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
		case d.Winner != nil && d.Winner.ID == each.ID && s.Endpoints.Usable(each.ID): // full now, with this request
		case s.Endpoints.Room(each.ID, over.at) != selection.HasRoom:
			each.Note = noteFull
		case slices.Contains(over.out, each.ID):
			each.Note = "evicted for its failures"
		}
		of.Candidates = append(of.Candidates, Candidate{Node: each.Node, ID: each.ID, Address: addressOf(targets, each.ID), Score: each.Score, Note: each.Note})
	}
	return of
}

// balancerDecision does the same for the balancer.
func (s *Service) balancerDecision(c *Choice, d selection.Decision, err error) Decision {
	targets := s.Route().Range
	of := Decision{
		Strategy: c.Spec.String(), Origin: c.Origin, Reason: d.Reason, Range: d.Range, Candidates: []Candidate{},
		Measure: "expected cost in ms: latency · (queue + 1) / success² / ramp; the lowest wins",
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
			Parts: &ScoreParts{LatencyMs: float64(each.Latency) / float64(time.Millisecond), Queue: each.Queue, Success: each.Success, Ramp: each.Ramp},
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
	for _, each := range of.Candidates { // people know nodes, not instances
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
