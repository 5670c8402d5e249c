package routing

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// fleet holds the relays that plans are made with.
type fleet struct {
	relays     []membership.Member // present, not leaving, with a forwarding address, sorted by ID
	candidates []affinity.Relay    // the same
	absent     []membership.Member // vanished, but with their places kept
	grace      *peering.Grace[membership.Member]
	graceOver  time.Time
	listeners  map[netip.AddrPort]string // the relay or gate that gossips each
	outside    bool                      // this relay gossips no forwarding address
	gates      []affinity.Place          // of those present and not leaving
}

// listenersOf returns the listeners that relays and gates gossip. Only those on their own hosts
// count, so that no relay can take the offers of others away.
func listenersOf(snapshot *membership.Snapshot) map[netip.AddrPort]string {
	out := map[netip.AddrPort]string{}
	for _, m := range snapshot.Members() {
		if !m.Role.Relays() {
			continue
		}
		host, err := netip.ParseAddrPort(m.GossipAddr)
		if err != nil {
			continue
		}
		for _, text := range []string{m.GossipAddr, m.ForwardAddr, m.AdminAddr} {
			if a, err := netip.ParseAddrPort(text); err == nil && plainAddr(a.Addr()) == plainAddr(host.Addr()) {
				out[netip.AddrPortFrom(plainAddr(a.Addr()), a.Port())] = m.ID
			}
		}
	}
	return out
}

// listener returns the relay or gate that listens at an address.
func (f *fleet) listener(address string) (id string, ok bool) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return "", false
	}
	id, ok = f.listeners[netip.AddrPortFrom(plainAddr(a.Addr()), a.Port())]
	return id, ok
}

func newFleet(grace time.Duration) fleet {
	return fleet{grace: peering.NewGrace(grace, func(m membership.Member) string { return m.ID })}
}

// updateFleet takes the relays of the newest snapshot and reports whether they have
// changed.
func (r *Router) updateFleet(now time.Time) (changed bool) {
	before := r.fleet
	self, present := r.snapshot.Get(r.cfg.Self)
	if present {
		r.fleet.outside = r.cfg.Role == identity.RoleRelay && self.ForwardAddr == ""
	}
	// Nothing can be forwarded to a relay without an address, such as a program that only picks: if
	// it had places, those who forward would find no relay for a service that has only such.
	relays := slices.DeleteFunc(r.snapshot.WithRole(identity.RoleRelay), func(m membership.Member) bool { return m.Leaving || m.ForwardAddr == "" })
	for i := range relays {
		relays[i].Draining = false // it changes no plan
	}
	if alone := r.cfg.Role == identity.RoleRelay && !r.fleet.outside && !hasMember(relays, r.cfg.Self); alone {
		// Ranges computed without this relay would drop all its workers together.
		if !present && hasMember(before.relays, r.cfg.Self) && !r.loggedAlone {
			r.loggedAlone = true
			r.cfg.Logger.Warn("this relay does not find itself among the members: it keeps the connections it has")
		}
		relays = before.relays
	} else {
		r.loggedAlone = false
	}
	r.fleet.gates = nil
	for _, m := range r.snapshot.WithRole(identity.RoleGate) {
		if !m.Leaving {
			r.fleet.gates = append(r.fleet.gates, affinity.Place{Datacenter: m.Datacenter, Region: m.Region})
		}
	}
	if r.snapshot.Degraded() {
		relays = keepFailedRelays(before.relays, relays, r.snapshot)
		if len(before.gates) > len(r.fleet.gates) {
			r.fleet.gates = before.gates
		}
	}
	r.fleet.relays, r.fleet.listeners = relays, listenersOf(r.snapshot)
	r.fleet.absent, r.fleet.graceOver = r.fleet.grace.Update(relays, now)
	if !slices.Equal(before.relays, relays) {
		r.fleet.candidates = candidates(relays, nil)
	}
	return !maps.Equal(before.listeners, r.fleet.listeners) ||
		r.cfg.Role == identity.RoleGate && !slices.Equal(before.gates, r.fleet.gates) ||
		!r.observes() && (!slices.Equal(before.relays, relays) || !slices.Equal(before.absent, r.fleet.absent))
}

// failedPools returns the pools of members that have failed since the last snapshot that
// was not degraded, also if they had left the ranges of this relay before: requests that they have
// got may still wait. Addresses at which a live member is reached as well are left out.
func (r *Router) failedPools() (pools []*upstream.Pool) {
	if r.snapshot.Degraded() {
		return nil // the members may be alive and this relay cut off
	}
	changes := membership.Diff(r.trusted, r.snapshot)
	r.trusted = r.snapshot
	if len(changes.Failed)+len(changes.Left) == 0 {
		return nil
	}
	failed := map[string]bool{}
	for _, m := range changes.Failed {
		failed[m.ID] = true
	}
	pools = r.pools.matching(func(k poolKey) bool { return k.role == identity.RoleRelay && failed[k.node] })
	alive := map[poolKey]bool{}
	for _, s := range *r.services.Load() {
		for _, t := range s.Route().Range {
			if !failed[t.Node] {
				for _, key := range t.keys() {
					alive[key] = true
				}
			}
		}
	}
	gone := func(node string) bool { _, member := r.snapshot.Get(node); return !member }
	for key, nodes := range r.links.nodes {
		if slices.ContainsFunc(nodes, func(node string) bool { return failed[node] }) && !alive[key] {
			pools = append(pools, r.links.held[key])
		}
		r.links.nodes[key] = slices.DeleteFunc(nodes, gone)
	}
	return pools
}

func hasMember(members []membership.Member, id string) bool {
	return slices.ContainsFunc(members, func(m membership.Member) bool { return m.ID == id })
}
