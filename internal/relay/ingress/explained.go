package ingress

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection"
)

// logging reports whether decisions are logged. Only then are they made up.
func (t *try) logging() bool {
	return t.handler.cfg.Logger.Enabled(t.r.Context(), slog.LevelDebug)
}

// chooseWorkerExplained is chooseWorker and says how it went.
func (t *try) chooseWorkerExplained(now time.Duration) (chosen, error) {
	pick, decision, err := t.service.PickExplained(t.key, selection.Instant(now), &t.tried)
	if t.spans != nil {
		t.spans.decision = &decision
	}
	if t.logging() {
		t.logDecision(decision)
	}
	if err != nil {
		return chosen{}, err
	}
	return chosen{target: pick.Value().(*routing.Target), pick: pick}, nil
}

// explainSession says that the request's cookie named the worker, where it is read.
func (t *try) explainSession(pick selection.Pick) {
	if !t.logging() && !t.spans.explaining() {
		return
	}
	choice := t.service.Choice()
	decision := routing.Decision{
		Strategy: choice.Spec.String(), Origin: choice.Origin, Winner: pick.Value().(*routing.Target).Node,
		Reason: "the session cookie of the request names it", Candidates: []routing.Candidate{}, Range: len(t.route.Range),
	}
	if t.spans != nil {
		t.spans.decision = &decision
	}
	if t.logging() {
		t.logDecision(decision)
	}
}

func (t *try) logDecision(decision routing.Decision) {
	t.handler.cfg.Logger.LogAttrs(t.r.Context(), slog.LevelDebug, "picked a worker",
		slog.String("service", t.service.Name), slog.String("strategy", decision.Strategy), slog.String("key", t.key),
		slog.Int("tried", len(t.failed)), slog.String("winner", decision.Winner), slog.String("reason", decision.Reason),
		slog.String("candidates", candidatesText(decision.Candidates)))
}

// logRelay says where a request is forwarded.
func (t *try) logRelay() {
	t.handler.cfg.Logger.LogAttrs(t.r.Context(), slog.LevelDebug, "picked a relay",
		slog.String("service", t.service.Name), slog.String("key", t.key), slog.Int("tried", len(t.failed)),
		slog.String("winner", t.at.target.Node), slog.String("address", t.at.target.Address))
}

// candidatesText is one line: "w1 0.31 (2.1 ms, queue 3, success 0.98); w2 …".
func candidatesText(candidates []routing.Candidate) string {
	var b strings.Builder
	for i, c := range candidates {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %.4g", c.Node, c.Score)
		if p := c.Parts; p != nil {
			fmt.Fprintf(&b, " (%.4g ms, queue %.3g, success %.3g, ramp %.3g)", p.LatencyMs, p.Queue, p.Success, p.Ramp)
		}
		if c.Note != "" {
			b.WriteString(" " + c.Note)
		}
	}
	return b.String()
}
