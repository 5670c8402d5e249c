package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// Results of probes, as metric labels.
const (
	probeOK     = "ok"
	probeFailed = "failed"
)

// reach detects whether this relay reaches the workers of the services that it serves, or,
// if it serves none (a gate), the relays that it forwards to. A new connection or the
// beginning of an answer proves that it reaches one. An open connection proves nothing: when
// packets are lost on the way, it stays open for minutes.
//
// A relay that loses most packets still gets an answer now and then. It is judged by its
// probes: if most of them failed within the timeout, it is unreached. Connections for
// requests do not count, because many may be for one member that is gone. Nor do refusals: a
// packet has come back. A member to which several connections in a row were opened acquits
// the network of this relay: then the others are at fault, such as all workers of one
// service.
//
// With traffic that is answered this costs nothing. Without any for half of the timeout,
// reach connects to one endpoint after the other, one at a time: with the default timeout
// about one in six seconds. After a failure, and while it is unreached, it opens up to two
// connections a second, one of them to the member with the longest series of successes.
type reach struct {
	timeout time.Duration
	probes  *prometheus.CounterVec
	reason  atomic.Pointer[string] // nil if enough are reached

	// Used only by Run.
	proven  time.Time                         // when the newest proof was found
	seen    map[*upstream.Pool]upstream.Stats // at the previous probe
	series  map[*upstream.Pool]int            // connections opened in a row
	recent  []dials                           // of the last calls, within the timeout
	doubt   time.Time                         // until when a failure is followed by probes
	turn    int
	probing atomic.Int32
	opened  atomic.Uint64 // probes since the previous call
	lost    atomic.Uint64
	running sync.WaitGroup
}

// dials are the probes that ended between two calls.
type dials struct {
	at           time.Time
	opened, lost uint64
}

const (
	lostShare   = 0.6 // of the probes, above which a relay is unreached
	healedShare = 0.1 // below which it is reached again
	enoughLost  = 5   // failed probes, for the first verdict
	enoughTried = 10  // probes, for the second verdict
	longSeries  = 6   // connections in a row that acquit the network; with 80 % loss 1 in 15,000
	maxProbes   = 4   // at the same time
)

func newReach(cfg Config) *reach {
	r := &reach{timeout: cfg.ReachTimeout, probes: metric.With(cfg.Registerer).CounterVec("ringway_relay_probes_total", "Connections opened only to learn whether this relay reaches its workers (a gate: its relays), while nothing answers or attempts fail, by result: ok, failed.", "result")}
	metric.StartAtZero(r.probes, probeOK, probeFailed)
	return r
}

// Unreached returns why this relay should get no traffic: within Config.ReachTimeout it has
// reached no worker of any service that it serves, or most of its attempts to connect have
// failed. It is empty while the relay reaches them, and if there is none to reach.
func (r *Router) Unreached() string {
	if reason := r.reach.reason.Load(); reason != nil {
		return *reason
	}
	return ""
}

// reachable returns the pools of the members that this relay should reach, each once, and
// the kind of these members.
func (r *Router) reachable() (pools []*upstream.Pool, kind string) {
	if r.cfg.PickOnly {
		return nil, "worker"
	}
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
	return r.pools.matching(func(k poolKey) bool { return k.role == identity.RoleRelay && k.protocol == advertise.H2C }), "relay"
}

// probe compares the results with those of the previous call.
func (r *reach) probe(ctx context.Context, pools []*upstream.Pool, kind string, now time.Time) {
	seen, series := make(map[*upstream.Pool]upstream.Stats, len(pools)), make(map[*upstream.Pool]int, len(pools))
	proof := len(pools) == 0 || r.proven.IsZero()
	var open, rest []*upstream.Pool
	var best *upstream.Pool
	latest := dials{at: now, opened: r.opened.Swap(0), lost: r.lost.Swap(0)}
	var ended, answers, undialled uint64
	for _, p := range pools {
		s, before := p.Stats(), r.seen[p]
		if _, known := r.seen[p]; !known {
			before = s // of a time before this pool mattered
		}
		proof = proof || s.Dials+s.Answers > before.Dials+before.Answers
		undialled += s.Undialled - before.Undialled
		ended += s.Ended - before.Ended
		answers += s.Answers - before.Answers
		seen[p], series[p] = s, r.series[p]+int(s.Dials-before.Dials)
		if s.Undialled > before.Undialled {
			series[p] = 0
		}
		if best == nil || series[p] > series[best] {
			best = p
		}
		if s.Open > 0 {
			open = append(open, p)
		} else {
			rest = append(rest, p)
		}
	}
	r.seen, r.series = seen, series
	r.recent = append(slices.DeleteFunc(r.recent, func(d dials) bool { return now.Sub(d.at) >= r.timeout }), latest)
	if undialled > 0 || ended > 2*answers {
		r.doubt = now.Add(r.timeout)
	}
	if proof {
		r.proven = now
	}
	r.evaluate(pools, kind, best != nil && series[best] >= longSeries, now)
	if len(pools) == 0 {
		return
	}
	doubted := r.reason.Load() != nil || now.Before(r.doubt)
	if now.Sub(r.proven) < r.timeout/2 && !doubted {
		return
	}
	// Those with a connection are most likely to answer, but it may be dead.
	if r.turn++; len(open) == 0 || r.turn%2 == 0 && len(rest) > 0 {
		open = rest
	}
	r.connect(ctx, open[r.turn/2%len(open)])
	if doubted {
		r.connect(ctx, best)
	}
}

// evaluate sets or ends the reason. acquitted is set if a member was reached several times in a
// row.
func (r *reach) evaluate(pools []*upstream.Pool, kind string, acquitted bool, now time.Time) {
	var opened, lost uint64
	for _, d := range r.recent {
		opened, lost = opened+d.opened, lost+d.lost
	}
	tried, silent := float64(opened+lost), now.Sub(r.proven)
	unreached := r.reason.Load() != nil
	switch {
	case len(pools) == 0 || acquitted:
		unreached = false
	case silent >= r.timeout, lost >= enoughLost && float64(lost) > lostShare*tried:
		unreached = true
	case lost == 0 && opened > 0, tried >= enoughTried && float64(lost) < healedShare*tried:
		unreached = false
	}
	if !unreached {
		r.reason.Store(nil)
		return
	}
	reason := fmt.Sprintf("reaches no %s: none of the %d that it should reach has taken a connection or answered for %v", kind, len(pools), silent)
	if silent < r.timeout/2 {
		reason = fmt.Sprintf("hardly reaches any %s: of %d probes of the %d that it should reach, %d were lost within %v", kind, opened+lost, len(pools), lost, r.timeout)
	}
	r.reason.Store(&reason)
}

// connect opens a connection and closes it.
func (r *reach) connect(ctx context.Context, p *upstream.Pool) {
	if r.probing.Add(1) > maxProbes {
		r.probing.Add(-1)
		return
	}
	r.running.Go(func() {
		defer r.probing.Add(-1)
		result, err := probeOK, p.Probe(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			r.opened.Add(1)
		case !errors.Is(err, syscall.ECONNREFUSED):
			r.lost.Add(1)
			fallthrough
		default:
			result = probeFailed
		}
		r.probes.WithLabelValues(result).Inc()
	})
}
