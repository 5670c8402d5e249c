package ingress

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// maxExplained bounds the candidates that are remembered of one decision: a strategy may
// compare all endpoints of a range.
const maxExplained = 16

// Explained is a request that has ended, with how its endpoints were chosen.
type Explained struct {
	// Record has of the request ID, Relay, Service, Time, Total, Status, Outcome and Code, and of each
	// attempt Endpoint, Chosen, Status and Failure. If no endpoint could be chosen, the last attempt
	// is empty.
	requestlog.Record
	// Decisions of the attempts, with at most maxExplained candidates each. One is nil for
	// a relay, which takes its turn in the pool.
	Decisions []*routing.Decision
}

// Explanations remember how the endpoints of the newest sampled requests were chosen. The
// methods are safe for concurrent use; those of a nil value do nothing.
type Explanations struct {
	mu   sync.Mutex
	ring []*Explained // nil entries are not used yet
	next int
	byID map[string]*Explained
}

// NewExplanations returns Explanations of this many requests, nil for none.
func NewExplanations(requests int) *Explanations {
	if requests <= 0 {
		return nil
	}
	return &Explanations{ring: make([]*Explained, requests), byID: map[string]*Explained{}}
}

// Of returns the explanation of the request with the ID, which must not be changed. Of
// several requests with one ID it is the newest.
func (e *Explanations) Of(id string) (*Explained, bool) {
	if e == nil {
		return nil, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.byID[id]
	return x, ok
}

// add remembers x in place of the oldest explanation.
func (e *Explanations) add(x *Explained) {
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
func (rec *record) explain(d *routing.Decision) {
	if rec.explaining() {
		rec.decision = d
	}
}

// explainRefusal keeps why no endpoint is chosen.
func (rec *record) explainRefusal(reason string) {
	rec.explain(&routing.Decision{Reason: reason})
}

// decided adds the decision of the attempt that begins. That of an attempt that a relay carries is nil:
// the last decision then is why no worker could be picked.
func (rec *record) decided(at *attempt) {
	if !rec.explaining() {
		return
	}
	if at.relay != nil {
		rec.decision = nil
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
	x := &Explained{Record: requestlog.Record{
		ID: strings.Clone(rec.ID), Relay: rec.handler.cfg.Self, Service: strings.Clone(rec.Service), Time: time.Now().Add(-rec.Total).UTC(),
		Status: rec.Status, Outcome: rec.Outcome, Code: rec.Code, Total: rec.Total,
	}}
	for i, d := range rec.decisions {
		a := &rec.Attempts[i]
		x.add(requestlog.Attempt{Endpoint: a.Endpoint, Chosen: a.Chosen, Status: a.Status, Failure: a.Failure}, d)
	}
	if rec.decision != nil { // no endpoint could be chosen
		x.add(requestlog.Attempt{}, rec.decision)
	}
	rec.handler.cfg.Explanations.add(x)
}

func (x *Explained) add(a requestlog.Attempt, d *routing.Decision) {
	x.Attempts, x.Decisions = append(x.Attempts, a), append(x.Decisions, bounded(d))
}

// bounded returns the decision with at most maxExplained candidates, the winner among them.
func bounded(d *routing.Decision) *routing.Decision {
	if d == nil {
		return nil
	}
	own := *d
	own.Key = strings.Clone(d.Key)
	if len(d.Candidates) > maxExplained {
		own.Candidates = slices.Clone(d.Candidates[:maxExplained])
		won := func(c routing.Candidate) bool { return c.Node == d.Winner }
		if i := slices.IndexFunc(d.Candidates, won); i >= maxExplained {
			own.Candidates[maxExplained-1] = d.Candidates[i]
		}
	}
	return &own
}

// logging reports whether decisions are logged. Otherwise their text is not built.
func (t *request) logging() bool {
	return t.handler.cfg.Logger.Enabled(t.r.Context(), slog.LevelDebug)
}

// chooseWorkerExplained is chooseWorker with an explanation for the log or the span.
func (t *request) chooseWorkerExplained(now time.Duration) (destination, error) {
	pick, decision, err := t.service.PickExplained(t.key, selection.Instant(now), &t.tried)
	t.explain(&decision)
	if err != nil {
		return destination{}, err
	}
	return t.chosenWorker(pick), nil
}

// explainPick records for the log, the span or the explanations why the request goes to a worker
// that the strategy has not picked.
func (t *request) explainPick(pick selection.Pick[*routing.Target], reason string) {
	if !t.logging() && !t.observer.explaining() {
		return
	}
	choice := t.service.Choice()
	decision := routing.Decision{
		Strategy: choice.Spec.String(), Origin: choice.Origin, Winner: pick.Value().Node,
		Reason: reason, Range: len(t.route.Range),
	}
	t.explain(&decision)
}

func (t *request) explain(decision *routing.Decision) {
	t.observer.explain(decision)
	if t.logging() {
		t.logDecision(decision)
	}
}

func (t *request) logDecision(decision *routing.Decision) {
	t.handler.cfg.Logger.LogAttrs(t.r.Context(), slog.LevelDebug, "picked a worker",
		slog.String("service", t.service.Name), slog.String("strategy", decision.Strategy), slog.String("key", t.key),
		slog.Int("tried", len(t.failures)), slog.String("winner", decision.Winner), slog.String("reason", decision.Reason),
		slog.String("candidates", candidatesText(decision.Candidates)))
}

// logRelay logs where a request is forwarded.
func (t *request) logRelay() {
	t.handler.cfg.Logger.LogAttrs(t.r.Context(), slog.LevelDebug, "picked a relay",
		slog.String("service", t.service.Name), slog.String("key", t.key), slog.Int("tried", len(t.failures)),
		slog.String("winner", t.at.target.Node), slog.String("address", t.at.target.Address))
}

// candidatesText returns one line: "w1 0.31 (2.1 ms, queue 3, success 0.98); w2 …".
func candidatesText(candidates []routing.Candidate) string {
	var b strings.Builder
	for i, c := range candidates {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %.4g", c.Node, c.Score)
		if p := c.Parts; p != nil {
			fmt.Fprintf(&b, " (%.4g ms, queue %.3g, headroom %.3g, success %.3g, ramp %.3g)", float64(p.Latency)/float64(time.Millisecond), p.Queue, p.Headroom, p.Success, p.Ramp)
		}
		if c.Note != "" {
			b.WriteString(" " + c.Note)
		}
	}
	return b.String()
}
