package ingress

import (
	"net/http"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection"
)

// chooseWorker picks an endpoint of this relay's range: the one that the request's cookie
// names, or one by the strategy.
func (t *try) chooseWorker(now time.Duration) (chosen, error) {
	if t.session.cookie != nil {
		if pick, held := t.pickSession(now); held {
			t.explainSession(pick)
			return chosen{target: pick.Value().(*routing.Target), pick: pick}, nil
		}
	}
	if t.logging() || t.spans.explaining() {
		return t.chooseWorkerExplained(now)
	}
	pick, err := t.service.Pick(t.key, selection.Instant(now), &t.tried)
	if err != nil {
		return chosen{}, err
	}
	return chosen{target: pick.Value().(*routing.Target), pick: pick}, nil
}

// workerAnswered tells the balancer of an answer that begins. Until it has ended, the
// request counts as in flight.
func (t *try) workerAnswered(r upstream.Result) {
	outcome := selection.Success
	switch {
	case r.Shed:
		outcome = selection.Shed
	case r.Status >= http.StatusInternalServerError:
		outcome = selection.Failure
	}
	if r.Load >= 0 {
		outcome = outcome.WithLoad(r.Load)
	}
	t.at.pick = t.service.Endpoints.Answered(t.at.pick, selection.Instant(t.answered), outcome)
}

// workerEnded gives back a request whose answer is complete. What there was to learn
// was learnt from its head, so that no clock is read.
func (t *try) workerEnded() {
	t.service.Endpoints.Done(t.at.pick, selection.Instant(t.answered), selection.Success)
}

// workerFailed gives back a request that failed, before its answer began or within
// it.
func (t *try) workerFailed(f attempt, now time.Duration) {
	t.service.Endpoints.Done(t.at.pick, selection.Instant(now), f.outcome())
	t.tried.Add(t.at.pick)
	if e := t.at.target.Endpoint; e != nil && f.stage == upstream.StageDial && advertise.Refused(f.err) {
		t.handler.cfg.Unreachable(*e)
	}
}
