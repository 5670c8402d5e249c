package routing

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
)

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
	queue  []poolKey            // the rest of this round
	open   map[poolKey]struct{} // being connected to
	dead   map[poolKey]bool     // the last connection failed; true if the pool is held for the next check
	proven map[poolKey]struct{} // were dead, until a check has connected
}

type keptCheck struct {
	key poolKey
	err error
}

func newKeptChecks() *keptChecks {
	return &keptChecks{ended: make(chan keptCheck, checksAtOnce), open: map[poolKey]struct{}{}, dead: map[poolKey]bool{}, proven: map[poolKey]struct{}{}}
}

// checkKept begins a round of checks of the endpoints of failed members, unless one is under way:
// each has its turn, however many there are.
func (r *Router) checkKept(ctx context.Context) {
	k := r.kept
	if r.snapshot == nil || !r.snapshot.Degraded() {
		k.queue = nil
		return
	}
	if len(k.queue) == 0 {
		for _, s := range *r.services.Load() {
			for _, e := range failedEndpoints(s.Route().Endpoints, r.view.Endpoints(s.Name), r.snapshot) {
				k.queue = append(k.queue, r.cfg.endpointKey(e))
			}
		}
	}
	r.nextChecks(ctx)
}

// nextChecks begins checks until checksAtOnce are open.
func (r *Router) nextChecks(ctx context.Context) {
	k := r.kept
	for len(k.queue) > 0 && len(k.open) < checksAtOnce {
		key := k.queue[0]
		k.queue = k.queue[1:]
		p := r.pools.get(key)
		if _, busy := k.open[key]; busy || p == nil { // nil: not in the range of this relay
			continue
		}
		k.open[key] = struct{}{}
		k.running.Go(func() { k.ended <- keptCheck{key, p.Probe(ctx)} })
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
		r.revive(c.key)
		r.kept.proven[c.key] = struct{}{}
		return true
	}
	r.bury(c.key)
	for _, key := range []poolKey{c.key, c.key.forUpgrades()} {
		if p := r.pools.get(key); p != nil {
			p.Abandon()
		}
	}
	return true
}

// bury records that an endpoint is dead.
func (r *Router) bury(key poolKey) {
	// It gets no requests, so its connections end: without this hold there would be no next check.
	_, err := r.pools.hold(key)
	r.kept.dead[key] = err == nil
	delete(r.kept.proven, key)
}

// revive forgets that an endpoint is dead.
func (r *Router) revive(key poolKey) {
	if r.kept.dead[key] {
		r.pools.release(key)
	}
	delete(r.kept.dead, key)
}

// reviveAll forgets all that is known of kept endpoints: none is kept any more.
func (r *Router) reviveAll() {
	r.kept.queue = nil
	for key := range r.kept.dead {
		r.revive(key)
	}
	clear(r.kept.proven)
}

// markDead returns the kept endpoints; those that are dead are unreachable. One that could not be
// connected to before its member failed is dead until a check connects.
func (r *Router) markDead(kept []*advertise.Endpoint) []*advertise.Endpoint {
	for i, e := range kept {
		key := r.cfg.endpointKey(e)
		_, dead := r.kept.dead[key]
		if _, proven := r.kept.proven[key]; e.Unreachable && !dead && !proven {
			r.bury(key)
			dead = true
		}
		if dead != e.Unreachable {
			worker := *e.Worker // the other services of the worker share it
			worker.Unreachable = dead
			kept[i] = &advertise.Endpoint{Service: e.Service, Worker: &worker}
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
