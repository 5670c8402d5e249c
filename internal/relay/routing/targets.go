package routing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/strategy"
)

// endpointKey is what a connection to an endpoint is made of.
func endpointKey(e *advertise.Endpoint) poolKey {
	if e.Secured {
		return sidecarKey(e.Address, upstream.Protocol(e.Protocol), e.NodeID)
	}
	return poolKey{address: e.Address, protocol: upstream.Protocol(e.Protocol)}
}

// keys are the target's connections.
func (t *Target) keys() []poolKey {
	if t.Upgrades == nil {
		return []poolKey{t.key}
	}
	return []poolKey{t.key, t.key.forUpgrades()}
}

// targets are the endpoints of this relay's range. Those that could not be reached
// are left out, unless there is no other that the strategy may use: to try one and
// fail is as good as nothing, and the first to connect ends the outage.
func (r *Router) targets(plan *affinity.Plan, index int, ready map[string]*advertise.Endpoint, spec strategy.Spec) ([]*Target, error) {
	assignments, err := plan.Assignments(index)
	if err != nil {
		return nil, err
	}
	sharing := relaysSharing(plan, ready)
	reachable, unreachable := make([]*Target, 0, len(assignments)), []*Target(nil)
	for _, a := range assignments {
		e := ready[a.Worker]
		if e == nil {
			continue // vanished, its place is kept
		}
		t, err := r.endpointTarget(e)
		if err != nil {
			// One endpoint that cannot be dialled must not cost the others.
			r.leaveOut(e, err)
			continue
		}
		t.Weight, t.Endpoint = a.Weight, e
		if e.Slots > 0 {
			t.Limit = (e.Slots-1)/max(sharing[a.Worker], 1) + 1
		}
		if e.Unreachable {
			unreachable = append(unreachable, t)
		} else {
			reachable = append(reachable, t)
		}
	}
	if len(reachable) == 0 {
		return unreachable, nil
	}
	if preferred := func(t *Target) bool { return slices.Contains(spec.Preferred, t.Node) }; spec.Name == strategy.Manual && !slices.ContainsFunc(reachable, preferred) {
		for _, t := range unreachable {
			if preferred(t) {
				reachable = append(reachable, t)
			}
		}
	}
	return reachable, nil
}

// relaysSharing are, for each worker, the relays of the plan that send to it: each may
// have an equal part of its slots, rounded up. It is nil where no endpoint has slots.
// Relays that only keep a connection as a reserve are not counted.
func relaysSharing(plan *affinity.Plan, ready map[string]*advertise.Endpoint) map[string]int {
	limited := false
	for _, e := range ready {
		limited = limited || e.Slots > 0
	}
	if !limited {
		return nil
	}
	sharing := make(map[string]int, len(ready))
	var row []affinity.Assignment
	for i := range plan.Affine() {
		row, _ = plan.AppendAssignments(row[:0], i) // i is an index of the plan
		for _, a := range row {
			if a.Weight > 0 {
				sharing[a.Worker]++
			}
		}
	}
	return sharing
}

// endpointTarget is where the requests for an endpoint go.
func (r *Router) endpointTarget(e *advertise.Endpoint) (*Target, error) {
	if r.own.listens(e.Address) {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errOwnListener)
	}
	if r.cfg.Identity != nil && !e.Secured && !slices.Contains(r.cfg.AllowClearText, e.Name) {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errUnsecured)
	}
	return r.target(e.NodeID, e.Epoch, endpointKey(e))
}

// maxSaid bounds how many lines are remembered so that they are not repeated.
const maxSaid = 1024

// leaveOut counts an endpoint that this relay cannot use, and logs it: once for each
// service and worker, and once for all where the cause is this relay's own.
func (r *Router) leaveOut(e *advertise.Endpoint, err error) {
	reason, subject := leftOutProtocol, e.Name+" "+e.NodeID
	switch {
	case errors.Is(err, errNoCertificate):
		reason, subject = leftOutNoCertificate, ""
	case errors.Is(err, errUnsecured):
		reason, subject = leftOutUnsecured, e.Name
	case errors.Is(err, errOwnListener):
		reason = leftOutOwnListener
	}
	r.leftOut.WithLabelValues(reason).Inc()
	line := reason + " " + subject
	if _, said := r.saidLeftOut[line]; said || len(r.saidLeftOut) >= maxSaid {
		return
	}
	r.saidLeftOut[line] = struct{}{}
	r.cfg.Logger.Warn("endpoint left out", "service", e.Name, "worker", e.NodeID, "reason", reason, "err", err)
}

func (r *Router) target(node string, epoch uint64, key poolKey) (*Target, error) {
	fail := func(err error) (*Target, error) { return nil, fmt.Errorf("%s (%s): %w", node, key.address, err) }
	pool, err := r.links.pool(key)
	if err != nil {
		return fail(err)
	}
	t := &Target{ID: fmt.Sprintf("%s.%d", node, epoch), Node: node, Address: key.address, Secured: key.role == identity.RoleWorker, Pool: pool, key: key}
	if key.role != "" && key.protocol == upstream.H2C {
		// Relays and sidecars speak both; what is behind a service's h2c only it knows.
		if t.Upgrades, err = r.links.pool(key.forUpgrades()); err != nil {
			return fail(err)
		}
	}
	return t, nil
}
