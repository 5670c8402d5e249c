package relay

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
)

// drain takes a relay out of rotation without stopping it: /readyz answers 503, and the
// answers to clients close their connections. The relay stays a member and keeps its
// range, so a drain of a minute does not change the plans of the cluster; the other members
// show it as draining. Requests that still reach the relay are carried. Only a stop leaves the cluster.
type drain struct {
	since    atomic.Pointer[time.Time] // nil: not draining
	mu       sync.Mutex                // held while since changes
	announce func(bool)
}

// newDrain returns a drain that announces its changes to the other members.
func newDrain(reg prometheus.Registerer, announce func(bool)) *drain {
	d := &drain{announce: announce}
	metric.With(reg).GaugeFunc("ringway_relay_drained", "1 while an operator has taken this relay out of rotation, 0 otherwise.", func() float64 {
		if d.on() {
			return 1
		}
		return 0
	})
	return d
}

func (d *drain) on() bool { return d.since.Load() != nil }

// set reports whether the state changed.
func (d *drain) set(on bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on() == on {
		return false
	}
	var since *time.Time
	if on {
		now := time.Now()
		since = &now
	}
	d.since.Store(since)
	d.announce(on)
	return true
}

func (r *Relay) handleDrain(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if r.stopping.Load() {
			process.WriteError(w, http.StatusConflict, "this relay stops: it is out of rotation, and stays so")
			return
		}
		if r.drain.set(on) {
			r.cfg.Logger.Info(map[bool]string{true: "drained: not ready until an operator takes it back", false: "not drained any more"}[on])
		}
		answer := api.Drain{Relay: r.cfg.Membership.ID, InFlight: r.InFlight()}
		if since := r.drain.since.Load(); since != nil {
			answer.Draining, answer.Since = true, *since
		}
		process.WriteJSON(w, http.StatusOK, answer)
	}
}
