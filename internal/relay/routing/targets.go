package routing

import (
	"errors"
	"fmt"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership/identity"
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
// are left out, unless there is no other.
func (r *Router) targets(plan *affinity.Plan, index int, ready map[string]*advertise.Endpoint) ([]*Target, error) {
	assignments, err := plan.Assignments(index)
	if err != nil {
		return nil, err
	}
	reachable, unreachable := make([]*Target, 0, len(assignments)), []*Target(nil)
	for _, a := range assignments {
		e := ready[a.Worker]
		if e == nil {
			continue // vanished, its place is kept
		}
		t, err := r.target(e.NodeID, e.Epoch, endpointKey(e))
		if err != nil {
			// One endpoint that cannot be dialled must not cost the others.
			r.leaveOut(e, err)
			continue
		}
		t.Weight, t.Endpoint = a.Weight, e
		if e.Unreachable {
			unreachable = append(unreachable, t)
		} else {
			reachable = append(reachable, t)
		}
	}
	if len(reachable) == 0 {
		return unreachable, nil
	}
	return reachable, nil
}

// leaveOut counts an endpoint that this relay cannot use, and logs it. Without a
// certificate that would be every secured one: the first stands for all.
func (r *Router) leaveOut(e *advertise.Endpoint, err error) {
	if !errors.Is(err, errNoCertificate) {
		r.leftOut.WithLabelValues(leftOutProtocol).Inc()
	} else {
		r.leftOut.WithLabelValues(leftOutNoCertificate).Inc()
		if r.saidNoCertificate {
			return
		}
		r.saidNoCertificate = true
	}
	r.cfg.Logger.Warn("endpoint left out", "service", e.Name, "worker", e.NodeID, "err", err)
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
