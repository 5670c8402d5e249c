package ingress

import (
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/pool"
)

// chosen is where one attempt goes: to a worker, or to another relay.
type chosen struct {
	target *routing.Target
	pick   selection.Pick            // of the worker
	relay  *pool.Lease[*routing.Hop] // of the relay, nil for a worker
}

// decideWay finds out whether workers or relays carry the request. It reports false
// when it has answered: nobody here does.
func (t *try) decideWay() bool {
	t.route = t.service.Route()
	t.hop = !t.route.Affine()
	if t.hop && t.handler.cfg.Hop {
		// The forwarding relay sees other members than this one does. It asks
		// another relay; forwarding once more could go in circles.
		t.metrics.rejected(codeMisdirected)
		if t.spans != nil {
			t.spans.outcome, t.spans.status, t.spans.code = outcomeFailed, http.StatusMisdirectedRequest, codeMisdirected
		}
		misdirect(t.w)
		return false
	}
	return true
}

// misdirect tells a relay that forwards to ask another one.
func misdirect(w http.ResponseWriter) { w.WriteHeader(http.StatusMisdirectedRequest) }

// wayChanged reports whether there is a newer route: then nothing was found because
// it was looked for in the wrong place.
func (t *try) wayChanged() bool { return t.service.Route() != t.route }

// chooseRelay picks a relay to forward to. While none is connected but one will be,
// it waits for that, until the deadline.
func (t *try) chooseRelay(now, deadline time.Duration) (chosen, error) {
	relays := t.service.Relays()
	if relays == nil {
		return chosen{}, pool.ErrNoPeers
	}
	lease, err := relays.Acquire(t.r.Context(), pool.Request{Key: t.key, Exclude: t.relays, Patience: deadline - now})
	if err != nil {
		return chosen{}, err
	}
	return chosen{target: lease.Conn().Target, relay: lease}, nil
}

// relayAnswered tells the pool of an answer that begins. A relay that reports the
// failure of a worker has not failed itself.
func (t *try) relayAnswered(r upstream.Result) {
	outcome := pool.Success
	if r.Shed {
		outcome = pool.Shed
	}
	t.at.relay.Report(outcome)
}

// relayFailed tells the pool of an attempt that failed.
func (t *try) relayFailed(f attempt) {
	if !f.blameless() && !f.full {
		t.at.relay.Report(pool.Failure)
	}
	switch {
	case f.err == errMisdirected:
		t.misdirected++
	case !f.local && !f.stopped:
		t.at.relay.Conn().Failed(f.err)
	}
	t.relays = append(t.relays, t.at.target.Node)
	t.at.relay.Release()
}
