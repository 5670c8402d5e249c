package ingress

import (
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// destination is where one attempt goes: a worker or another relay.
type destination struct {
	target *routing.Target
	pick   selection.Pick[*routing.Target]      // of a worker
	relay  *relaypool.Lease[*routing.RelayHold] // of a relay, nil for a worker
	by     string                               // what has chosen it, for the record
}

// decideWay decides whether workers or relays carry the request. It returns false if it
// has answered because this relay has neither.
func (t *request) decideWay() bool {
	t.route = t.service.Route()
	t.toRelay = !t.route.Affine() || t.route.OutOfReach && t.mayCross() && t.service.Relays() != nil
	if t.record != nil {
		t.record.route = t.route
	}
	if t.toRelay && t.handler.cfg.FromRelay {
		// The forwarding relay sees other members than this relay. It asks another relay; a
		// second forwarding could create a loop.
		t.metrics.rejected(codeMisdirected)
		t.endTrace(outcomeFailed, http.StatusMisdirectedRequest, codeMisdirected)
		misdirect(t.w)
		t.record.refused(&failure{Code: codeMisdirected}, http.StatusMisdirectedRequest, 0)
		return false
	}
	return t.checkKind() && (t.handler.rates == nil || t.withinRates())
}

// misdirect answers a forwarding relay that it must ask another relay. The field distinguishes the
// answer from a 421 of a service, which has acted on the request.
func misdirect(w http.ResponseWriter) {
	w.Header()[wire.FailedHeader] = []string{string(codeMisdirected)}
	w.WriteHeader(http.StatusMisdirectedRequest)
}

// mayCross reports whether relays of other zones may carry the request.
func (t *request) mayCross() bool { return len(t.route.Elsewhere) > 0 && !t.handler.cfg.FromRelay }

const (
	// unopenedAtHome is how many workers of the own zone must refuse a connection before a relay
	// of another zone carries the request.
	unopenedAtHome = 2
	// crossPatience is how long a request waits until the router has prepared for that. It does when
	// the first worker is out of reach.
	crossPatience = time.Second
	crossPause    = 10 * time.Millisecond // between two looks
)

// cross reports whether a relay of another zone can carry the next attempt, and waits until there
// are connections to some. All workers of a zone may end together, and gossip needs seconds to find
// out.
func (t *request) cross(deadline time.Duration) bool {
	if !t.mayCross() {
		return false
	}
	until := min(time.Since(t.handler.cfg.Epoch)+crossPatience, deadline)
	for t.service.Relays() == nil {
		if time.Since(t.handler.cfg.Epoch) >= until || !t.rest(crossPause) {
			return false
		}
	}
	return true
}

// rest waits. It returns false if the client leaves.
func (t *request) rest(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.r.Context().Done():
		return false
	}
}

// wayChanged reports whether there is a newer route. Then the old route is the reason that
// nothing was found.
func (t *request) wayChanged() bool { return t.service.Route() != t.route }

// Relays that start together are members before they know their services. viewPatience is how
// long a request waits until one of them does. Between two rounds of attempts it pauses for
// firstViewPause, and then twice as long each time.
const (
	viewPatience   = 5 * time.Second
	firstViewPause = 50 * time.Millisecond
)

// awaitView pauses if every relay has refused the request as misdirected, and lets it try all
// of them again. It returns false if there is no reason or no time for this.
func (t *request) awaitView() bool {
	waited := time.Since(t.handler.cfg.Epoch) - t.began
	pause := max(firstViewPause, 2*t.pause)
	if !t.allMisdirected() || waited+pause > min(viewPatience, t.timeout) {
		return false
	}
	if !t.rest(pause) {
		return false
	}
	t.pause = pause
	t.refusedViews += t.misdirected
	t.misdirected, t.relays, t.failures = 0, t.relays[:0], t.failures[:0]
	return true
}

// choose picks the destination of the next attempt. If no other is left, the endpoint that did
// not act on the last attempt gets the request once more, over another connection (RFC 9113
// §8.7).
func (t *request) choose(now, deadline time.Duration) error {
	last := t.at.destination
	err := t.chooseOther(now, deadline)
	if err == nil || t.sentAgain || !t.at.unprocessed() {
		return err
	}
	t.sentAgain = true
	if t.toRelay {
		t.relays = t.relays[:len(t.relays)-1]
		return t.chooseOther(now, deadline)
	}
	pick, takeErr := t.service.Endpoints.Take(last.target.ID, selection.Instant(now))
	if takeErr != nil {
		return err // it has left
	}
	t.explainPick(pick, "it did not act on the last attempt and there is no other endpoint, so it gets the request once more over another connection")
	t.at.destination = destination{target: pick.Value(), pick: pick, by: last.by}
	return nil
}

func (t *request) chooseOther(now, deadline time.Duration) (err error) {
	gone := t.unopened > 0 || t.at.fault != nil && t.at.fault.Broken()
	if !t.toRelay && t.unopened >= unopenedAtHome {
		t.toRelay = t.cross(deadline)
	}
	if !t.toRelay {
		if t.at.destination, err = t.chooseWorker(now); err == nil || !gone {
			return err
		}
		if t.toRelay = t.cross(deadline); !t.toRelay {
			return err
		}
	}
	if t.at.destination, err = t.chooseRelay(now, deadline); err == nil && t.logging() {
		t.logRelay()
	}
	if err != nil && t.route.Affine() {
		t.toRelay = false
		t.at.destination, err = t.chooseWorker(now)
	}
	return err
}

// chooseRelay picks a relay to forward to. While none is connected but one will be, it
// waits for the connection until the deadline.
func (t *request) chooseRelay(now, deadline time.Duration) (destination, error) {
	relays := t.service.Relays()
	if relays == nil {
		return destination{}, relaypool.ErrNoPeers
	}
	lease, err := relays.Acquire(t.r.Context(), relaypool.Request{Key: t.key, Exclude: t.relays, Patience: deadline - now})
	if err != nil {
		return destination{}, err
	}
	return destination{target: lease.Conn().Target, relay: lease, by: byRelayPool}, nil
}

// What chooses a destination, if it is not a strategy.
const (
	byRelayPool     = "relay_pool"
	bySessionCookie = "session_cookie"
	byCanary        = "canary"
)

// releaseFailed releases the destination of a failed attempt.
func (t *request) releaseFailed(now time.Duration) {
	if t.toRelay {
		t.relayFailed()
		return
	}
	t.workerFailed(now)
}

// relayAnswered reports the beginning of an answer to the pool. A relay that reports the
// failure of a worker has not failed itself.
func (t *request) relayAnswered(r upstream.Result) {
	outcome := selection.Success
	if outcomeOf(&r) == selection.Shed && r.Failed != string(wire.CodeRateLimited) { // a limit is no load of the relay that applies it
		outcome = selection.Shed
	}
	t.upload.end(t.at.answered)
	t.at.relay.Report(selection.Result{Outcome: outcome, Client: t.upload.byClient()})
}

// relayFailed reports a failed attempt to the pool.
func (t *request) relayFailed() {
	a := &t.at
	switch {
	case a.notCounted() || a.fault.Full():
	case a.fault.Shed():
		t.at.relay.Report(selection.Result{Outcome: selection.Shed})
	default:
		t.at.relay.Report(selection.Result{Outcome: selection.Failure})
	}
	switch {
	case a.fault == faultMisdirected:
		t.misdirected++
	case !a.local() && !a.fault.Stopped():
		t.at.relay.Conn().Failed(a.fault)
	}
	t.relays = append(t.relays, t.at.target.Node)
	t.at.relay.Release()
}

// chooseWorker picks an endpoint of this relay's range: the one that the request's cookie
// names, or one by the strategy.
func (t *request) chooseWorker(now time.Duration) (destination, error) {
	if t.session.cookie != nil {
		if pick, held := t.pickSession(now); held {
			t.explainPick(pick, "the session cookie of the request names it")
			return destination{target: pick.Value(), pick: pick, by: bySessionCookie}, nil
		}
	}
	if t.logging() || t.observer.explaining() {
		return t.chooseWorkerExplained(now)
	}
	pick, err := t.service.Pick(t.key, selection.Instant(now), &t.tried)
	if err != nil {
		return destination{}, err
	}
	return t.chosenWorker(pick), nil
}

// chosenWorker returns the destination that the strategy has picked.
func (t *request) chosenWorker(pick selection.Pick[*routing.Target]) destination {
	c := destination{target: pick.Value(), pick: pick}
	if t.record != nil {
		c.by = t.service.Choice().Spec.Name
		if c.target.Canary {
			c.by = byCanary
		}
	}
	return c
}

// workerAnswered reports the beginning of an answer to the balancer. Until the answer
// ends, the request counts as in flight.
func (t *request) workerAnswered(r upstream.Result) {
	awaits := t.upload.end(t.at.answered)
	result := selection.Result{Outcome: t.at.graded, Load: r.Load, HasLoad: r.Load >= 0, Client: t.upload.byClient(), AwaitsBody: awaits}
	t.at.pick = t.service.Endpoints.Answered(t.at.pick, selection.Instant(t.at.answered), result)
}

// workerEnded releases a request whose answer is complete. The balancer has already
// counted its head, so no clock is read unless a call of gRPC failed afterwards.
func (t *request) workerEnded(outcome selection.Outcome, now time.Duration) {
	if t.at.graded != selection.Success { // the balancer has counted the head, or must count nothing
		outcome = selection.Cancelled
	}
	t.service.Endpoints.Done(t.at.pick, selection.Instant(now), selection.Result{Outcome: outcome})
}

// workerFailed releases a request that failed, before its answer began or during the
// answer.
func (t *request) workerFailed(now time.Duration) {
	result := t.at.result()
	result.AwaitsBody = t.upload.end(now)
	t.service.Endpoints.Done(t.at.pick, selection.Instant(now), result)
	t.tried.Add(t.at.pick)
	unopened := t.at.unopened()
	if e := t.at.target.Endpoint; e != nil && (unopened || t.at.fault.Broken()) {
		t.handler.cfg.Unreachable(*e)
		if unopened {
			t.unopened++
		}
	}
}
