package routing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
)

// targets returns the endpoints of this relay's range. Endpoints that could not be reached
// are left out, unless the strategy may use no other: then an attempt costs nothing, and
// the first connection ends the outage.
func (r *Router) targets(route *Route, assignments []affinity.Assignment, ready *readyEndpoints, spec strategy.Spec) []*Target {
	sharing := r.relaysSharing(route, ready)
	reachable, unreachable := make([]*Target, 0, len(assignments)), []affinity.Assignment(nil)
	use := func(a affinity.Assignment, e *advertise.Endpoint) {
		t, err := r.endpointTarget(e, route.TCP)
		if err != nil {
			// One endpoint that cannot be dialled must not prevent the use of the others.
			r.leaveOut(route, e, err)
			return
		}
		t.Weight, t.Limit = a.Weight, r.slotShare(e, sharing[a.Worker])
		reachable = append(reachable, t)
	}
	for _, a := range assignments {
		switch e := ready.of(a.Worker); {
		case e == nil: // vanished, with its place kept
		case e.Unreachable: // a target would keep a connection that is not wanted
			unreachable = append(unreachable, a)
		default:
			use(a, e)
		}
	}
	route.Unreachable, route.OutOfReach = len(unreachable), len(reachable) == 0 && len(unreachable) > 0
	preferred := func(node string) bool { return slices.Contains(spec.Preferred, node) }
	chosen := spec.Name == strategy.Manual && !slices.ContainsFunc(reachable, func(t *Target) bool { return preferred(t.Node) })
	for _, a := range unreachable {
		if route.OutOfReach || chosen && preferred(a.Worker) {
			use(a, ready.of(a.Worker))
		}
	}
	return reachable
}

// endpointKey returns the key of the connections to an endpoint.
func (c *Config) endpointKey(e *advertise.Endpoint) poolKey {
	protocol := e.Protocol
	switch {
	case !e.Secured && protocol == advertise.H2:
		return poolKey{address: e.Address, protocol: protocol, serverName: c.ServiceTLS.name(e.Name)}
	case !e.Secured:
		return poolKey{address: e.Address, protocol: protocol}
	case protocol == advertise.TCP:
		protocol = advertise.HTTP1 // a sidecar opens a session for an upgrade
	case protocol == advertise.H2:
		protocol = advertise.H2C // the sidecar has the TLS with the service
	}
	return sidecarKey(e.Address, protocol, e.NodeID)
}

// keys returns the keys of the target's connections.
func (t *Target) keys() []poolKey {
	if t.Upgrades == nil {
		return []poolKey{t.key}
	}
	return []poolKey{t.key, t.key.forUpgrades()}
}

// errOtherKind is the error of an endpoint that differs from most endpoints of its service.
var errOtherKind = errors.New("it takes TCP sessions and most workers of this service take requests of HTTP, or the other way round: advertise the same kind of protocol on all")

// relaysSharing returns for each worker the number of relays of the plan that send to it:
// each may use an equal part of its slots, rounded up. It is nil if no endpoint has slots.
// Relays that only keep a connection as a reserve are not counted. Nor are observers, whose
// number changes often: without a plan each may use all slots, and the sidecar refuses more.
func (r *Router) relaysSharing(route *Route, ready *readyEndpoints) map[string]int {
	if route.Plan == nil {
		return nil
	}
	if !slices.ContainsFunc(route.Endpoints, func(e *advertise.Endpoint) bool { return r.slotsOf(e) > 0 && ready.has(e) }) {
		return nil
	}
	sharing := make(map[string]int, len(route.Endpoints))
	var row []affinity.Assignment
	for i := range route.Plan.Affine() {
		row, _ = route.Plan.AppendAssignments(row[:0], i) // cannot fail: i is an index of the plan
		for _, a := range row {
			if a.Weight > 0 {
				sharing[a.Worker]++
			}
		}
	}
	return sharing
}

// endpointTarget returns the target for the requests to an endpoint.
func (r *Router) endpointTarget(e *advertise.Endpoint, tcp bool) (*Target, error) {
	if (e.Protocol == advertise.TCP) != tcp {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errOtherKind)
	}
	if r.own.listens(e.Address) {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errOwnListener)
	}
	if r.cfg.Identity != nil && !e.Secured && !slices.Contains(r.cfg.AllowClearText, e.Name) {
		return nil, fmt.Errorf("%s (%s): %w", e.NodeID, e.Address, errUnsecured)
	}
	t, err := r.target(e.NodeID, e.Epoch, r.cfg.endpointKey(e))
	if err != nil {
		return nil, err
	}
	t.Endpoint, t.OtherZone = e, r.cfg.Datacenter != "" && e.Datacenter != r.cfg.Datacenter
	t.Refuses = t.Secured && e.Slots > 0 && int(e.Slots) <= r.slotsOf(e) // the sidecar does not know the operator's
	return t, nil
}

// maxLogged bounds how many lines are remembered so that they are not repeated.
const maxLogged = 1024

// leaveOut records in the route an endpoint that this relay cannot use, counts it, and logs it:
// once for each service and worker, or once in all if this relay itself is the cause.
func (r *Router) leaveOut(route *Route, e *advertise.Endpoint, err error) {
	if route.Refused == nil {
		route.Refused, route.leftOut = map[string]string{}, map[string]int{}
	}
	route.Refused[e.NodeID] = err.Error()
	reason, subject := leftOutProtocol, e.Name+" "+e.NodeID
	switch {
	case errors.Is(err, errNoCertificate):
		reason, subject = leftOutNoCertificate, ""
	case errors.Is(err, errUnsecured):
		reason, subject = leftOutUnsecured, e.Name
	case errors.Is(err, errOwnListener), errors.Is(err, errListener):
		reason = leftOutOwnListener
	}
	r.leftOut.WithLabelValues(reason).Inc()
	route.leftOut[reason]++
	line := reason + " " + subject
	if _, said := r.loggedLeftOut[line]; said || len(r.loggedLeftOut) >= maxLogged {
		return
	}
	r.loggedLeftOut[line] = struct{}{}
	r.cfg.Logger.Warn("endpoint left out", "service", e.Name, "worker", e.NodeID, "reason", reason, "err", err)
}

func (r *Router) target(node string, epoch uint64, key poolKey) (*Target, error) {
	fail := func(err error) (*Target, error) { return nil, fmt.Errorf("%s (%s): %w", node, key.address, err) }
	t := &Target{ID: fmt.Sprintf("%s.%d", node, epoch), Node: node, Address: key.address, Secured: key.role == identity.RoleWorker, key: key}
	if r.cfg.PickOnly {
		if _, err := r.cfg.dial(key, r.own); err != nil { // the program could not connect either
			return fail(err)
		}
		return t, nil
	}
	var err error
	if t.Pool, err = r.links.pool(key, node); err != nil {
		return fail(err)
	}
	if key.role != "" && key.protocol == advertise.H2C {
		// Relays and sidecars support both protocols; a service with h2c may support only h2c.
		if t.Upgrades, err = r.links.pool(key.forUpgrades(), node); err != nil {
			return fail(err)
		}
	}
	return t, nil
}
