package xds

import (
	"cmp"
	"errors"
	"math"
	"net/netip"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
)

// weightScale turns shares of a client's traffic into integers. The sum over a range stays far
// below the 2^32 that Envoy allows, and the error of a share is below one in a million.
const weightScale = 1_000_000

// Levels of endpoints. Envoy uses the endpoints of the next priority only while those before
// it are not healthy enough, so a drain cannot put the others into panic mode.
const (
	levelTraffic  = iota
	levelStandby  // weight 0 in the plan: connected as a reserve
	levelDraining // for sessions that a stateful_session filter keeps at their worker
	levels
)

// Reasons why an endpoint of a range is left out.
const (
	leftOutHostName  = "host_name"
	leftOutUnsecured = "unsecured"
	leftOutKind      = "protocol"
	leftOutTwice     = "address_twice"
)

var leftOutReasons = []string{leftOutHostName, leftOutUnsecured, leftOutKind, leftOutTwice}

// assigned is one endpoint of a range.
type assigned struct {
	*advertise.Endpoint
	addr   netip.AddrPort
	weight float64 // share of the client's traffic
	level  int
}

// rules are the conditions under which endpoints of a service are sent.
type rules struct {
	secured bool // only those that prove the worker's id, as relays with certificates do
	tcp     bool // most endpoints take TCP sessions, so those of HTTP are left out, or the reverse
}

// check returns the address of an endpoint, or why it is left out. Envoy refuses all endpoints
// of a cluster if one has a host name.
func (r rules) check(e *advertise.Endpoint) (netip.AddrPort, string) {
	addr, err := netip.ParseAddrPort(e.Address)
	switch {
	case err != nil || addr.Addr().Zone() != "":
		return addr, leftOutHostName
	case r.secured && !e.Secured:
		return addr, leftOutUnsecured
	case (e.Protocol == advertise.TCP) != r.tcp:
		return addr, leftOutKind
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), ""
}

// mostlyTCP reports whether more than half of the endpoints take TCP sessions, so that one
// worker cannot take a service away from the others.
func mostlyTCP(endpoints []*advertise.Endpoint) bool {
	tcp := 0
	for _, e := range endpoints {
		if e.Protocol == advertise.TCP {
			tcp++
		}
	}
	return 2*tcp > len(endpoints)
}

// planned is what the endpoints of every client of a service follow from.
type planned struct {
	plan *affinity.Plan // nil: there is no client or no worker
	// withDraining is the plan as if draining workers took requests: it has them in the ranges
	// that they had before. nil if there are none.
	withDraining *affinity.Plan
	endpoints    map[string]*advertise.Endpoint // by worker
	rules        rules
}

// rangeOf returns the endpoints of a client, by worker, and why others of its range are left
// out.
func (p *planned) rangeOf(client string) (out []assigned, leftOut map[string]string, err error) {
	leftOut = map[string]string{}
	add := func(plan *affinity.Plan, draining bool) error {
		if plan == nil {
			return nil
		}
		index, ok := plan.Index(client)
		if !ok {
			return errors.New("the plan does not have the client " + client)
		}
		row, err := plan.Assignments(index)
		if err != nil {
			return err
		}
		for _, a := range row {
			e := p.endpoints[a.Worker]
			if e == nil || (e.State == advertise.Draining) != draining {
				continue // vanished, with its place kept, or a matter of the other plan
			}
			one := assigned{Endpoint: e, weight: a.Weight}
			switch {
			case draining:
				one.level = levelDraining
			case a.Weight == 0:
				one.level = levelStandby
			}
			var why string
			if one.addr, why = p.rules.check(e); why != "" {
				leftOut[e.NodeID] = why
				continue
			}
			out = append(out, one)
		}
		return nil
	}
	if err := errors.Join(add(p.plan, false), add(p.withDraining, true)); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(out, func(a, b assigned) int {
		return cmp.Or(a.level-b.level, cmp.Compare(a.Region, b.Region), cmp.Compare(a.Datacenter, b.Datacenter), cmp.Compare(a.NodeID, b.NodeID))
	})
	// Two workers at one address, such as an instance and its successor: clients of gRPC refuse
	// all endpoints then.
	known := map[netip.AddrPort]bool{}
	out = slices.DeleteFunc(out, func(a assigned) bool {
		if known[a.addr] {
			leftOut[a.NodeID] = leftOutTwice
			return true
		}
		known[a.addr] = true
		return false
	})
	return out, leftOut, nil
}

// loadAssignment returns the resource with the endpoints of a range, which are sorted.
func loadAssignment(service string, sorted []assigned) *endpoint.ClusterLoadAssignment {
	out := &endpoint.ClusterLoadAssignment{ClusterName: service}
	var group *endpoint.LocalityLbEndpoints
	last, priority := -1, -1
	for _, a := range sorted {
		if a.level != last { // priorities have no gaps
			last, group = a.level, nil
			priority++
		}
		if l := group.GetLocality(); group == nil || l.GetRegion() != a.Region || l.GetZone() != a.Datacenter {
			group = &endpoint.LocalityLbEndpoints{Priority: uint32(priority), LoadBalancingWeight: wrapperspb.UInt32(0)}
			if a.Region != "" || a.Datacenter != "" {
				group.Locality = &core.Locality{Region: a.Region, Zone: a.Datacenter}
			}
			out.Endpoints = append(out.Endpoints, group)
		}
		one := lbEndpoint(a)
		group.LbEndpoints = append(group.LbEndpoints, one)
		group.LoadBalancingWeight.Value += one.LoadBalancingWeight.Value
	}
	return out
}

func lbEndpoint(a assigned) *endpoint.LbEndpoint {
	health := core.HealthStatus_HEALTHY
	if a.level == levelDraining {
		health = core.HealthStatus_DRAINING
	}
	return &endpoint.LbEndpoint{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: a.addr.Addr().String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(a.addr.Port())},
			}}},
		}},
		HealthStatus: health,
		Metadata:     metadata(a.Endpoint),
		// Envoy allows no weight of 0. Within a standby level all weights are equal.
		LoadBalancingWeight: wrapperspb.UInt32(max(1, uint32(math.Round(a.weight*weightScale)))),
	}
}

// metadata returns what Envoy can select and log endpoints by.
func metadata(e *advertise.Endpoint) *core.Metadata {
	text := structpb.NewStringValue
	own := map[string]*structpb.Value{"worker": text(e.NodeID), "protocol": text(string(cmp.Or(e.Protocol, advertise.HTTP1)))}
	lb := map[string]*structpb.Value{"worker": text(e.NodeID)}
	if e.Version != "" {
		own["version"], lb["version"] = text(e.Version), text(e.Version)
	}
	if e.Slots > 0 {
		own["slots"] = structpb.NewNumberValue(float64(e.Slots))
	}
	if len(e.Tags) > 0 {
		tags := &structpb.ListValue{}
		for _, tag := range e.Tags {
			tags.Values = append(tags.Values, text(tag))
		}
		own["tags"] = structpb.NewListValue(tags)
	}
	out := &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"ringway": {Fields: own}, "envoy.lb": {Fields: lb}}}
	socket := map[string]*structpb.Value{}
	if e.Secured {
		socket["secured"] = structpb.NewBoolValue(true)
	}
	if e.ProxyProtocol {
		socket["proxy_protocol"] = structpb.NewBoolValue(true)
	}
	if len(socket) > 0 {
		out.FilterMetadata["envoy.transport_socket_match"] = &structpb.Struct{Fields: socket}
	}
	return out
}
