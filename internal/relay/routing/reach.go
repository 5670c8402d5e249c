package routing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/series"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/ring"
)

// Results of probes, as metric labels.
const (
	probeOK     = "ok"
	probeFailed = "failed"
)

// reach detects whether this relay reaches any worker of the services that it serves, or,
// if it serves none (a gate), any relay that it forwards to. A new connection or the
// beginning of an answer proves it. An open connection proves nothing: when packets are
// lost on the way, it stays open for minutes.
//
// With traffic this costs nothing. Without any for half of the timeout, reach connects to
// one endpoint after the other, one at a time: with the default timeout about one in six
// seconds while they are reached, one a second while none is.
type reach struct {
	timeout time.Duration
	probes  *prometheus.CounterVec
	reason  atomic.Pointer[string] // nil if some are reached

	// Used only by Run.
	proven  time.Time                 // when the newest proof was found
	seen    map[*upstream.Pool]uint64 // the proofs of each pool at the previous probe
	turn    int
	probing atomic.Bool
	running sync.WaitGroup
}

func newReach(cfg Config) *reach {
	r := &reach{timeout: cfg.ReachTimeout, probes: series.With(cfg.Registerer).CounterVec("ringway_relay_probes_total", "Connections opened only to learn whether any worker can be reached, for lack of traffic, by result: ok, failed.", "result")}
	series.StartAtZero(r.probes, probeOK, probeFailed)
	return r
}

// Unreached returns why this relay should get no traffic: for Config.ReachTimeout it has
// reached no worker of any service that it serves. It is empty while the relay reaches
// one, and if there is none to reach.
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

// probe compares the proofs with those of the previous call.
func (r *reach) probe(ctx context.Context, pools []*upstream.Pool, kind string, now time.Time) {
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
		// Those with a connection are most likely to answer, but it may be dead.
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

// While a snapshot is degraded, this relay may be the one that is cut off from the gossip
// of the others, and its connections may work. So members that failed stay in the routes
// until the snapshot is trusted again. Members that left are removed and new members are
// added. Endpoints that are really dead are found by connecting to them: while a connection
// fails they keep their place in the plan and get no requests.

// failed reports whether the member vanished without leaving.
func failed(s *membership.Snapshot, id string) bool {
	d, gone := s.Departed(id)
	return gone && d.Reason == membership.Failed
}

// keepFailedRelays returns now and the failed members of before, sorted by ID.
func keepFailedRelays(before, now []membership.Member, s *membership.Snapshot) []membership.Member {
	for _, m := range before {
		if !hasMember(now, m.ID) && failed(s, m.ID) {
			now = append(now, m)
		}
	}
	slices.SortFunc(now, func(a, b membership.Member) int { return strings.Compare(a.ID, b.ID) })
	return now
}

// failedEndpoints returns the endpoints of before that failed and are not in now.
func failedEndpoints(before []*advertise.Endpoint, now *advertise.Endpoints, s *membership.Snapshot) (out []*advertise.Endpoint) {
	for _, e := range before {
		if now.Of(e.NodeID) == nil && failed(s, e.NodeID) {
			out = append(out, e)
		}
	}
	return out
}

// checksAtOnce limits the connections that keptChecks opens at the same time.
const checksAtOnce = 16

// keptChecks connects to the endpoints of failed members that a degraded snapshot keeps.
type keptChecks struct {
	ended   chan keptCheck
	running sync.WaitGroup

	// Used only by Run.
	open map[poolKey]struct{} // being connected to
	dead map[poolKey]struct{} // the last connection failed
}

// keptCheck is the result of one check.
type keptCheck struct {
	key poolKey
	err error
}

func newKeptChecks() *keptChecks {
	return &keptChecks{ended: make(chan keptCheck, checksAtOnce), open: map[poolKey]struct{}{}, dead: map[poolKey]struct{}{}}
}

// checkKept begins to check the endpoints of failed members, at most checksAtOnce at a time.
func (r *Router) checkKept(ctx context.Context) {
	if r.snapshot == nil || !r.snapshot.Degraded() {
		return
	}
	k := r.kept
	for _, s := range *r.services.Load() {
		for _, e := range failedEndpoints(s.Route().Endpoints, r.view.Endpoints(s.Name), r.snapshot) {
			key := r.cfg.endpointKey(e)
			p := r.pools.get(key)
			if _, busy := k.open[key]; busy || p == nil { // nil: not in the range of this relay
				continue
			}
			if len(k.open) == checksAtOnce {
				return
			}
			k.open[key] = struct{}{}
			k.running.Go(func() { k.ended <- keptCheck{key, p.Probe(ctx)} })
		}
	}
}

// endCheck reports whether the routes must be computed anew. Requests that wait for an answer
// of a dead endpoint end: its member has failed, and it accepts no connection.
func (r *Router) endCheck(c keptCheck) (changed bool) {
	delete(r.kept.open, c.key)
	if _, dead := r.kept.dead[c.key]; dead == (c.err != nil) || !r.snapshot.Degraded() {
		return false
	}
	if c.err == nil {
		delete(r.kept.dead, c.key)
		return true
	}
	r.kept.dead[c.key] = struct{}{}
	for _, key := range []poolKey{c.key, c.key.forUpgrades()} {
		if p := r.pools.get(key); p != nil {
			p.Abandon()
		}
	}
	return true
}

// markDead returns the kept endpoints; those that are dead are unreachable.
func (r *Router) markDead(kept []*advertise.Endpoint) []*advertise.Endpoint {
	for i, e := range kept {
		if _, dead := r.kept.dead[r.cfg.endpointKey(e)]; dead != e.Unreachable {
			marked := *e
			marked.Unreachable = dead
			kept[i] = &marked
		}
	}
	return kept
}

// inRingOrder sorts the endpoints of a service, one for each worker.
func inRingOrder(service string, endpoints []*advertise.Endpoint) []*advertise.Endpoint {
	byID := make(map[string]*advertise.Endpoint, len(endpoints))
	ids := make([]string, len(endpoints))
	for i, e := range endpoints {
		byID[e.NodeID], ids[i] = e, e.NodeID
	}
	out := make([]*advertise.Endpoint, 0, len(ids))
	for _, id := range ring.Order(service, ids) {
		out = append(out, byID[id])
	}
	return out
}
