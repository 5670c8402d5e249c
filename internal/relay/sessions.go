package relay

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// DefaultSessionDrain is how long sessions have when a relay stops, unless the settings
// say otherwise: long enough that clients which connect again do not come in a rush,
// short enough for a rolling restart.
const DefaultSessionDrain = 5 * time.Minute

const (
	// sessionTick is how often a stopping relay ends those sessions whose turn it is.
	sessionTick = 50 * time.Millisecond
	// sessionGrace is how long the last of them may take to end: WebSockets answer a
	// close frame.
	sessionGrace = 2 * time.Second
)

func newEndedSessions(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "ringway_relay_sessions_ended_total", Help: "Tunnels and streams that this relay ended because it stops, over --session-drain-timeout.",
	})
}

// drainSessions ends what outlives the drain of requests, which began at that moment.
// Requests without an answer get one that says so. Tunnels and streams end one after
// the other, spread evenly over the time that is left of --session-drain-timeout: all at
// once would send all their clients to the other relays at once. It returns how many
// requests and sessions are left.
func (r *Relay) drainSessions(began time.Time) (left int64) {
	cfg := r.tuned.Load()
	r.sessions.EndRequests()
	all, whole := r.sessions.Len(), cfg.SessionDrainTimeout-cfg.DrainTimeout
	if all > 0 && whole > 0 {
		r.cfg.Logger.Info("draining sessions", "sessions", all, "timeout", whole)
	}
	end := began.Add(cfg.SessionDrainTimeout)
	if all == 0 || whole <= 0 {
		end = time.Now()
	}
	tick := time.NewTicker(sessionTick)
	defer tick.Stop()
	for {
		rest := time.Until(end)
		if over := r.sessions.Len() - sessionsLeft(all, float64(rest)/float64(max(whole, 1))); over > 0 {
			r.sessionsEnded.Add(float64(r.sessions.End(over)))
		}
		if left = r.inFlight(); left == 0 || rest < -sessionGrace {
			break
		}
		<-tick.C
	}
	if left == 0 { // net/http may just be sending the last answers
		ctx, cancel := context.WithTimeout(context.Background(), sessionGrace)
		defer cancel()
		_ = errors.Join(r.ingress.server.Shutdown(ctx), r.peer.server.Shutdown(ctx)) // what is left is cut off
	}
	return left
}

// sessionsLeft is how many of all may be open when this share of the time is left.
func sessionsLeft(all int, share float64) int {
	if share <= 0 {
		return 0
	}
	return int(math.Ceil(float64(all) * min(share, 1)))
}
