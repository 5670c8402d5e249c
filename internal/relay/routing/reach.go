package routing

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/relay/upstream"
)

// Results of probes, as metric labels.
const (
	probeOK     = "ok"
	probeFailed = "failed"
)

// reach finds out whether this relay reaches any worker of the services that it
// serves; for one that serves none, a gate, any relay that it forwards to. What proves
// it is a connection that was made, or an answer that began. An open connection proves
// nothing: when packets are lost on the way, it stays open for minutes.
//
// While there is traffic that costs nothing. Without any for half of the timeout, one
// endpoint after the other is connected to, one at a time: about one each six seconds
// while all is well, one a second while none is reached.
type reach struct {
	timeout time.Duration
	probes  *prometheus.CounterVec
	reason  atomic.Pointer[string] // nil: some are reached

	// Of Run.
	proven  time.Time                 // when the newest proof was seen
	seen    map[*upstream.Pool]uint64 // proofs of each, at the last look
	turn    int
	probing atomic.Bool
	running sync.WaitGroup
}

func newReach(cfg Config) *reach {
	r := &reach{timeout: cfg.ReachTimeout, probes: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_relay_probes_total", Help: "Connections opened only to learn whether any worker can be reached, for lack of traffic, by result: ok, failed.",
	}, []string{"result"})}
	for _, result := range []string{probeOK, probeFailed} {
		r.probes.WithLabelValues(result)
	}
	return r
}

// Unreached says why this relay should get no traffic: for Config.ReachTimeout it has
// reached no worker of any service that it serves. It is empty while it reaches one, and
// where there is none to be reached.
func (r *Router) Unreached() string {
	if reason := r.reach.reason.Load(); reason != nil {
		return *reason
	}
	return ""
}

// reachable are the connections to those that this relay should reach, each once, and
// what they are.
func (r *Router) reachable() (pools []*upstream.Pool, kind string) {
	known := map[*upstream.Pool]struct{}{}
	add := func(p *upstream.Pool) {
		if _, twice := known[p]; !twice {
			known[p] = struct{}{}
			pools = append(pools, p)
		}
	}
	forwards := false
	for _, s := range *r.services.Load() {
		route := s.Route()
		forwards = forwards || len(route.Forward) > 0
		for _, t := range route.Range {
			add(t.Pool)
		}
	}
	if len(pools) > 0 || !forwards {
		return pools, "worker"
	}
	return r.forwarding.conns.all(), "relay"
}

// look compares what is proven with what was at the last look.
func (r *reach) look(ctx context.Context, pools []*upstream.Pool, kind string, now time.Time) {
	seen := make(map[*upstream.Pool]uint64, len(pools))
	proof := len(pools) == 0 || r.proven.IsZero()
	var open, rest []*upstream.Pool
	for _, p := range pools {
		s := p.Stats()
		seen[p] = s.Dials + s.Answers
		proof = proof || seen[p] > r.seen[p]
		if s.Open > 0 {
			open = append(open, p)
		} else {
			rest = append(rest, p)
		}
	}
	r.seen = seen
	if proof {
		r.proven = now
		r.reason.Store(nil)
		return
	}
	silent := now.Sub(r.proven)
	if silent >= r.timeout {
		reason := fmt.Sprintf("reaches no %s: none of the %d that it should reach has taken a connection or answered for %v", kind, len(pools), r.timeout)
		r.reason.Store(&reason)
	}
	if silent >= r.timeout/2 && r.probing.CompareAndSwap(false, true) {
		// Those with a connection are most likely to answer; but it may be dead.
		if r.turn++; len(open) == 0 || r.turn%2 == 0 && len(rest) > 0 {
			open = rest
		}
		target := open[r.turn/2%len(open)]
		r.running.Go(func() {
			defer r.probing.Store(false)
			result := probeOK
			if target.Probe(ctx) != nil {
				result = probeFailed
			}
			if ctx.Err() == nil {
				r.probes.WithLabelValues(result).Inc()
			}
		})
	}
}
