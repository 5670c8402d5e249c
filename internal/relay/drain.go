package relay

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/admin"
)

// DrainAnswer is what both drains answer with.
type DrainAnswer struct {
	Relay    string `json:"relay"`
	Draining bool   `json:"draining"`
	// Since is when the drain began; absent without one.
	Since time.Time `json:"since,omitzero"`
	// InFlight counts the requests of all services, those of other relays included.
	InFlight int64 `json:"in_flight"`
}

// drain takes a relay out of rotation without stopping it: /readyz answers 503, and
// the answers to clients close their connections. The relay stays a member and keeps
// its range, so the plan of the fleet does not move for what may last a minute, and
// whatever still reaches it is carried. To leave the fleet is what a stop is for.
type drain struct {
	since atomic.Pointer[time.Time] // nil: not draining
}

func newDrain(reg prometheus.Registerer) *drain {
	d := &drain{}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_relay_drained", Help: "1 while an operator has taken this relay out of rotation, 0 otherwise.",
	}, func() float64 {
		if d.on() {
			return 1
		}
		return 0
	})
	return d
}

func (d *drain) on() bool { return d.since.Load() != nil }

// set reports whether it changed anything.
func (d *drain) set(on bool) bool {
	if !on {
		return d.since.Swap(nil) != nil
	}
	now := time.Now()
	return d.since.CompareAndSwap(nil, &now)
}

func (r *Relay) handleDrain(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if r.stopping.Load() {
			admin.WriteError(w, http.StatusConflict, "this relay stops: it is out of rotation, and stays so")
			return
		}
		if r.drain.set(on) {
			r.cfg.Logger.Info(map[bool]string{true: "drained: not ready until an operator takes it back", false: "not drained any more"}[on])
		}
		answer := DrainAnswer{Relay: r.cfg.Membership.ID, InFlight: r.inFlight()}
		if since := r.drain.since.Load(); since != nil {
			answer.Draining, answer.Since = true, *since
		}
		admin.WriteJSON(w, http.StatusOK, answer)
	}
}
