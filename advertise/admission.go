package advertise

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Refusal describes services of a worker that do not become endpoints.
type Refusal struct {
	Worker string `json:"worker"`
	// Reason is host_name, foreign_host, local_host, service_name, no_service_names,
	// services_per_record, services or new_services.
	Reason string `json:"reason"`
	// Count is how many services are refused, Service is one of them, and Text explains
	// why it is refused. Services are the first sixteen of them.
	Count    int      `json:"count"`
	Service  string   `json:"service"`
	Text     string   `json:"text"`
	Services []string `json:"services,omitempty"`
}

const (
	maxRefusals        = 100 // how many refusals a view lists
	maxRefusedServices = 16  // how many services a refusal lists
)

// admission applies the rules. It is a state machine without goroutine, lock or
// clock; the view builder owns it.
//
// Most rules depend only on a record and its member. Two depend on what others offer and on the
// time: the number of names, and the rate of new names of each member, which is a token bucket.
// Services that these two refuse wait, and retry tries them again.
type admission struct {
	Rules
	// notify is called for each refusal, once per record. Nil: no call.
	notify func(Refusal)

	refused map[string]verdict
	fresh   map[string]struct{} // names that the view being built adds
	tokens  map[string]*rate.Limiter
	listed  []Refusal // for views; nil when refused has changed since
	full    int       // records with services that MaxServices refuses
}

// verdict holds the refusals of a member's record.
type verdict struct {
	stamp    stamp
	epoch    uint64
	refusals []Refusal // one per reason
}

// full returns 1 if MaxServices refuses services of the record, else 0.
func (v verdict) full() int {
	if slices.ContainsFunc(v.refusals, func(r Refusal) bool { return r.Reason == refusedServices }) {
		return 1
	}
	return 0
}

func newAdmission(rules Rules, notify func(Refusal)) *admission {
	if notify == nil {
		notify = func(Refusal) {}
	}
	return &admission{Rules: rules, notify: notify, refused: map[string]verdict{}, fresh: map[string]struct{}{}, tokens: map[string]*rate.Limiter{}}
}

// admit returns the services of a record that become endpoints. The rules that depend only on the
// record come first: a service that they refuse must take no token, and no place among the names.
func (a *admission) admit(m membership.Member, e *entry, services []Service, view *viewBuilder, now time.Time) []Service {
	v := verdict{stamp: e.stamp, epoch: m.Epoch}
	admitted := services[:0]
	if n := len(services); n > a.MaxServicesPerRecord {
		err := refuse(refusedRecord, "it offers %d services, more than %d: offer fewer, run a second worker, or raise --max-services-per-record on all members", n, a.MaxServicesPerRecord)
		for _, s := range services {
			v.add(m.ID, s.Name, err)
		}
		services = nil
	}
	for _, s := range services {
		err := a.checkServiceName(s.Name, m.ServiceNames)
		if err == nil {
			err = a.checkAddress(s.Address, m.GossipAddr)
		}
		if err == nil {
			err = a.admitName(m.ID, s.Name, view, now)
		}
		if err != nil {
			v.add(m.ID, s.Name, err)
			continue
		}
		admitted = append(admitted, s)
	}
	a.record(m.ID, v)
	return admitted
}

// admitName limits the number of names and the rate of new names per member, with a token
// bucket.
//
// A name that has endpoints costs nothing. One that had some within the last day needs a place but
// no token, because it is not new. The place is checked before the token: a name that has to wait
// for a place must not use up the rate of its member. Buckets are by member id, so a restart does
// not fill one.
func (a *admission) admitName(id, name string, view *viewBuilder, now time.Time) error {
	known, offered := view.known(name)
	if _, already := a.fresh[name]; already || offered {
		return nil
	}
	if view.offeredNames()+len(a.fresh) >= a.MaxServices {
		return refuse(refusedServices, "%d services are already known: raise --max-services, or find the worker that keeps offering new names", a.MaxServices)
	}
	if !known {
		bucket := a.tokens[id]
		if bucket == nil {
			bucket = rate.NewLimiter(rate.Limit(float64(a.NewServicesPerMinute)/60), a.MaxServicesPerRecord)
			a.tokens[id] = bucket
		}
		if !bucket.AllowN(now, 1) {
			return refuse(refusedNewNames, "its worker offers more than %d new services per minute: they are accepted later, at that rate", a.NewServicesPerMinute)
		}
	}
	a.fresh[name] = struct{}{}
	return nil
}

func (v *verdict) add(worker, service string, err error) {
	bad := err.(*invalid)
	at := slices.IndexFunc(v.refusals, func(r Refusal) bool { return r.Reason == bad.reason })
	if at < 0 {
		at = len(v.refusals)
		v.refusals = append(v.refusals, Refusal{Worker: worker, Reason: bad.reason, Service: service, Text: bad.detail})
	}
	r := &v.refusals[at]
	if r.Count++; r.Count <= maxRefusedServices {
		r.Services = append(r.Services, service)
	}
}

// record stores the refusals and reports those that are new: a refusal of the same record for
// the same reason is reported only once.
func (a *admission) record(id string, v verdict) {
	before, was := a.refused[id]
	if len(v.refusals) == 0 {
		a.forget(id)
		return
	}
	a.full += v.full() - before.full()
	same := was && before.stamp == v.stamp && before.epoch == v.epoch
	for _, r := range v.refusals {
		if !same || !slices.ContainsFunc(before.refusals, func(b Refusal) bool { return b.Reason == r.Reason }) {
			a.notify(r)
		}
	}
	a.refused[id], a.listed = v, nil
}

// forget removes the refusals of a member.
func (a *admission) forget(id string) {
	if before, was := a.refused[id]; was {
		a.full -= before.full()
		delete(a.refused, id)
		a.listed = nil
	}
}

// list returns the first maxRefusals current refusals, sorted by worker.
func (a *admission) list() []Refusal {
	if a.listed == nil && len(a.refused) > 0 {
		for _, id := range slices.Sorted(maps.Keys(a.refused)) {
			if a.listed = append(a.listed, a.refused[id].refusals...); len(a.listed) >= maxRefusals {
				break
			}
		}
		a.listed = a.withLimit(a.listed[:min(len(a.listed), maxRefusals)])
	}
	return a.listed
}

// withLimit makes sure that a list of refusals that was cut shows that MaxServices is reached.
func (a *admission) withLimit(listed []Refusal) []Refusal {
	atLimit := func(r Refusal) bool { return r.Reason == refusedServices }
	if a.full == 0 || slices.ContainsFunc(listed, atLimit) {
		return listed
	}
	for _, v := range a.refused {
		if at := slices.IndexFunc(v.refusals, atLimit); at >= 0 {
			return append(listed, v.refusals[at])
		}
	}
	return listed
}

// retry returns the members that may have more services admitted now than before. It also
// removes the token buckets that are full again. Refusals for other reasons last until the record
// or its member changes, and both touch the worker.
func (a *admission) retry(now time.Time) (ids []string) {
	for id, v := range a.refused {
		if slices.ContainsFunc(v.refusals, func(r Refusal) bool { return r.Reason == refusedServices || r.Reason == refusedNewNames }) {
			ids = append(ids, id)
		}
	}
	maps.DeleteFunc(a.tokens, func(_ string, bucket *rate.Limiter) bool {
		return bucket.TokensAt(now) >= float64(a.MaxServicesPerRecord)
	})
	slices.SortFunc(ids, strings.Compare)
	return ids
}

// Rules determine which offers become endpoints. All members of a fleet should have the
// same rules: if rules differ, views and plans differ.
type Rules struct {
	// Proven is true if members prove their identity with certificates. A member may
	// then offer only addresses on the host of its own gossip address, or in
	// AllowedAddrs, and no host names, because a name can resolve to any address.
	// Default false: every address is allowed.
	Proven bool
	// AllowedAddrs are networks in which any member may offer addresses.
	AllowedAddrs []netip.Prefix
	// RequireServiceNames refuses the offers of members whose certificates name no services.
	// Those of a certificate that names some are always held against it. Default false: a fleet
	// that gets such certificates one after the other keeps all its workers. It has no effect
	// unless Proven is true.
	RequireServiceNames bool
	// MaxServices limits the number of known service names. Default 20,000: twice the
	// number of members of a large fleet. At the limit new names are refused.
	MaxServices int
	// MaxServicesPerRecord is how many services one member may offer, at most 1,024.
	// Default 128. Of a record with more services, none becomes an endpoint.
	MaxServicesPerRecord int
	// NewServicesPerMinute limits how many unknown names one member may offer per minute,
	// after a burst of MaxServicesPerRecord. Default 60.
	NewServicesPerMinute int
}

// Defaults of Rules.
const (
	DefaultMaxServices          = 20_000
	DefaultMaxServicesPerRecord = 128
	DefaultNewServicesPerMinute = 60
)

func (r *Rules) validate() error {
	if r.MaxServices < 0 || r.NewServicesPerMinute < 0 || r.MaxServicesPerRecord < 0 || r.MaxServicesPerRecord > MaxServices {
		return fmt.Errorf("advertise: rules %+v: want no negative number, 0 for the default, and at most %d services per record", *r, MaxServices)
	}
	r.MaxServices = cmp.Or(r.MaxServices, DefaultMaxServices)
	r.MaxServicesPerRecord = cmp.Or(r.MaxServicesPerRecord, DefaultMaxServicesPerRecord)
	r.NewServicesPerMinute = cmp.Or(r.NewServicesPerMinute, DefaultNewServicesPerMinute)
	return nil
}

// Reasons of refused offers, as metric labels.
const (
	refusedHostName    = "host_name"
	refusedForeignHost = "foreign_host"
	refusedLocalHost   = "local_host"
	refusedName        = "service_name"
	refusedNoNames     = "no_service_names"
	refusedRecord      = "services_per_record"
	refusedServices    = "services"
	refusedNewNames    = "new_services"
)

var refusals = []string{refusedHostName, refusedForeignHost, refusedLocalHost, refusedName, refusedNoNames, refusedRecord, refusedServices, refusedNewNames}

// checkAddress returns an error if a member with that gossip address must not offer the
// address. It always returns nil if Proven is false.
//
// Relays connect to the addresses that are offered, so a worker could have them connect to any
// host; a proven worker may name only its own. Loopback and link-local addresses are checked before
// AllowedAddrs, so that no network there allows them.
func (r Rules) checkAddress(address, gossipAddr string) error {
	gossip, err := netip.ParseAddrPort(gossipAddr)
	if !r.Proven {
		return nil
	} else if err != nil {
		return refuse(refusedForeignHost, "address %.80q: its member's gossip address %.80q has no IP to compare it with", address, gossipAddr)
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return refuse(refusedHostName, "address %.80q: members prove their identity, so it must be an IP address and not a host name", address)
	}
	ip, home := ip.Unmap(), gossip.Addr().Unmap()
	private := ip.IsLoopback() || ip.IsLinkLocalUnicast()
	if ip.IsUnspecified() || ip.IsMulticast() || private && !home.IsLoopback() && !home.IsLinkLocalUnicast() {
		return refuse(refusedLocalHost, "address %.80q: other hosts cannot reach its worker there: offer an address of the worker's host %v", address, home)
	}
	if ip != home && !slices.ContainsFunc(r.AllowedAddrs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return refuse(refusedForeignHost, "address %.80q: it is not on the worker's host %v: offer an address there, or allow the network with --endpoint-allowed-cidr", address, home)
	}
	return nil
}

// checkServiceName returns an error if a member whose certificate has these names must not offer a
// service. It always returns nil if Proven is false.
func (r Rules) checkServiceName(service, names string) error {
	if !r.Proven {
		return nil
	}
	if err := identity.CheckServiceName(service, names); err != nil {
		return refuse(refusedName, "%v", err)
	}
	if names == "" && r.RequireServiceNames {
		return refuse(refusedNoNames, "service %s: the certificate of its worker names no service, and --require-service-names is set: issue it with --service %s", service, service)
	}
	return nil
}

// CheckOffer returns an error if other members could not use an address that a member with
// that gossip address offers, because of the rules or because they cannot connect to it.
func (r Rules) CheckOffer(address, gossipAddr string) error {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	gossip, gossipErr := netip.ParseAddrPort(gossipAddr)
	switch {
	case err == nil && ip.Unmap().IsUnspecified():
		return refuse("address", "address %q: every interface is where to listen, not where to connect: give the address of this host", address)
	case err == nil && gossipErr == nil && ip.Unmap().IsLoopback() && !gossip.Addr().Unmap().IsLoopback():
		return refuse("address", "address %q: only this host can connect to it, and others reach this member at %s: give the address of this host", address, gossipAddr)
	}
	return r.checkAddress(address, gossipAddr)
}
