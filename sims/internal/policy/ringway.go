package policy

import (
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// Ringway is the balancer of package selection. The random source of the run replaces that
// of cfg.
func Ringway(name string, cfg selection.Config) queueing.Policy {
	return queueing.Policy{Name: name, New: func(env queueing.Env) queueing.Client {
		cfg := cfg
		cfg.Rand = env.Rand.Uint64
		balancer, err := selection.NewBalancer[int32](cfg)
		if err != nil {
			panic(err) // an invalid cfg is a bug of the scenario
		}
		return &ringway{Balancer: balancer, least: env.MinEffective, evicted: map[string]bool{}}
	}}
}

type ringway struct {
	*selection.Balancer[int32]
	least   int
	tickets []selection.Pick[int32]
	free    []uint32
	// An eviction lasts at least one second, so a check at every refresh misses none. (A
	// worker evicted again on its first request may be counted once for both evictions.)
	failed    bool // a request failed, so that a worker may be evicted
	evicted   map[string]bool
	evictions int
}

func (r *ringway) Update(endpoints []queueing.Endpoint, now selection.Instant) {
	list := make([]selection.Endpoint[int32], len(endpoints))
	for i, e := range endpoints {
		list[i] = selection.Endpoint[int32]{ID: fleet.WorkerID(e.Worker), Weight: e.Weight, Tier: e.Tier, Value: int32(e.Worker)}
	}
	if err := r.UpdateRange(selection.Range[int32]{Endpoints: list, MinEffective: r.least}, now); err != nil {
		panic(err) // ranges come from package affinity
	}
}

func (r *ringway) Pick(now selection.Instant) queueing.Ticket {
	pick, err := r.Balancer.Pick(now, nil)
	if err != nil {
		panic(err) // a range is never empty
	}
	if len(r.free) == 0 {
		r.free = append(r.free, uint32(len(r.tickets)))
		r.tickets = append(r.tickets, selection.Pick[int32]{})
	}
	handle := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.tickets[handle] = pick
	return queueing.Ticket{Worker: pick.Value(), Handle: handle}
}

func (r *ringway) Done(t queueing.Ticket, a queueing.Answer) {
	result := selection.Result{Outcome: selection.Success, Load: a.Load, HasLoad: a.Load >= 0}
	switch a.Outcome {
	case queueing.Failure:
		result.Outcome = selection.Failure
		r.failed = true
	case queueing.Shed:
		result.Outcome = selection.Shed
	}
	r.Balancer.Done(r.tickets[t.Handle], a.Now, result)
	r.free = append(r.free, t.Handle)
}

func (r *ringway) Refresh(now selection.Instant) {
	if r.failed {
		r.failed = false
		for _, s := range r.Stats(now) {
			gone := s.State == selection.Evicted
			if gone && !r.evicted[s.ID] {
				r.evictions++
			}
			r.evicted[s.ID] = gone
			r.failed = r.failed || gone
		}
	}
	r.Balancer.Refresh(now)
}

func (r *ringway) Evictions() int { return r.evictions }

// Unreported wraps a policy so that workers do not report their load.
func Unreported(name string, p queueing.Policy) queueing.Policy {
	return queueing.Policy{Name: name, New: func(env queueing.Env) queueing.Client { return unreported{p.New(env)} }}
}

type unreported struct{ queueing.Client }

func (u unreported) Done(t queueing.Ticket, a queueing.Answer) {
	a.Load = -1
	u.Client.Done(t, a)
}
