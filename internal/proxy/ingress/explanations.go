package ingress

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/api"
)

// maxExplained bounds the candidates that are remembered of one decision: a strategy may
// compare all endpoints of a range.
const maxExplained = 16

// Explanations remember how the endpoints of the newest sampled requests were chosen. The
// methods are safe for concurrent use; those of a nil value do nothing.
type Explanations struct {
	mu   sync.Mutex
	ring []*api.ExplainedRequest // nil entries are not used yet
	next int
	byID map[string]*api.ExplainedRequest
}

// NewExplanations returns Explanations of this many requests, nil for none.
func NewExplanations(requests int) *Explanations {
	if requests <= 0 {
		return nil
	}
	return &Explanations{ring: make([]*api.ExplainedRequest, requests), byID: map[string]*api.ExplainedRequest{}}
}

// Of returns the explanation of the request with the ID, which must not be changed. Of
// several requests with one ID it is the newest.
func (e *Explanations) Of(id string) (*api.ExplainedRequest, bool) {
	if e == nil {
		return nil, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.byID[id]
	return x, ok
}

// add remembers x in place of the oldest explanation.
func (e *Explanations) add(x *api.ExplainedRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.ring[e.next]; old != nil && e.byID[old.ID] == old {
		delete(e.byID, old.ID)
	}
	e.ring[e.next], e.byID[x.ID] = x, x
	e.next = (e.next + 1) % len(e.ring)
}

// explaining reports whether the choices of the request are remembered.
func (rec *record) explaining() bool {
	return rec != nil && rec.Sampled && rec.handler.cfg.Explanations != nil
}

// explain keeps how the endpoint of the next attempt was chosen, or why none was.
func (rec *record) explain(d *api.Decision) {
	if rec.explaining() {
		rec.decision = d
	}
}

// explainRefusal keeps why no endpoint is chosen.
func (rec *record) explainRefusal(reason string) {
	rec.explain(&api.Decision{Reason: reason, Candidates: []api.Candidate{}})
}

// decided adds the decision of the attempt that begins.
func (rec *record) decided() {
	if !rec.explaining() {
		return
	}
	rec.decisions = append(rec.decisions, rec.decision)
	rec.decision = nil
}

// remember adds the explanation of a request that has ended. It copies all texts that the
// request owns.
func (rec *record) remember() {
	if !rec.explaining() || len(rec.decisions) == 0 && rec.decision == nil {
		return
	}
	x := &api.ExplainedRequest{
		ID: strings.Clone(rec.ID), Relay: rec.handler.cfg.Self, Service: strings.Clone(rec.Service), Time: time.Now().Add(-rec.Total).UTC(),
		Status: rec.Status, Outcome: rec.Outcome, Code: rec.Code, DurationMs: float64(rec.Total) / float64(time.Millisecond), Attempts: []api.ExplainedAttempt{},
	}
	for i, d := range rec.decisions {
		a := &rec.Attempts[i]
		x.Attempts = append(x.Attempts, api.ExplainedAttempt{Endpoint: a.Endpoint, ChosenBy: a.Chosen, Status: a.Status, Failure: a.Failure, Decision: bounded(d)})
	}
	if rec.decision != nil { // no endpoint could be chosen
		x.Attempts = append(x.Attempts, api.ExplainedAttempt{Decision: bounded(rec.decision)})
	}
	rec.handler.cfg.Explanations.add(x)
}

// bounded returns the decision with at most maxExplained candidates, the winner among them.
func bounded(d *api.Decision) *api.Decision {
	if d == nil {
		return nil
	}
	own := *d
	own.Key = strings.Clone(d.Key)
	if len(d.Candidates) > maxExplained {
		own.Candidates = slices.Clone(d.Candidates[:maxExplained])
		won := func(c api.Candidate) bool { return c.Node == d.Winner }
		if i := slices.IndexFunc(d.Candidates, won); i >= maxExplained {
			own.Candidates[maxExplained-1] = d.Candidates[i]
		}
	}
	return &own
}
