package advertise

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Rules say which offers become endpoints. All members of a fleet should have the
// same: views, and the plans made of them, differ where these do.
type Rules struct {
	// Proven says that members prove who they are with certificates. A member may
	// then offer only addresses on the host of its own gossip address, or in
	// AllowedAddrs, and no host names: of those it cannot be known where they lead.
	// Default false: every address counts.
	Proven bool
	// AllowedAddrs are networks in which any member may offer addresses.
	AllowedAddrs []netip.Prefix
	// MaxServices is how many service names are known at a time. Default 20,000:
	// twice as many as there are members in a large fleet. The names that were known
	// first stay.
	MaxServices int
	// MaxServicesPerRecord is how many services one member may offer, at most 1,024.
	// Default 128. A record with more offers nothing.
	MaxServicesPerRecord int
	// NewServicesPerMinute is how many names that are not known yet one member may
	// bring, after a first MaxServicesPerRecord of them. Default 60.
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

// Why offers are refused, as metric labels.
const (
	refusedHostName    = "host_name"
	refusedForeignHost = "foreign_host"
	refusedLocalHost   = "local_host"
	refusedRecord      = "services_per_record"
	refusedServices    = "services"
	refusedNewNames    = "new_services"
)

var refusals = []string{refusedHostName, refusedForeignHost, refusedLocalHost, refusedRecord, refusedServices, refusedNewNames}

// CheckAddress reports why a member with that gossip address must not offer the
// address. It is always nil unless members are proven.
func (r Rules) CheckAddress(address, gossipAddr string) error {
	gossip, err := netip.ParseAddrPort(gossipAddr)
	if !r.Proven {
		return nil
	} else if err != nil {
		return refuse(refusedForeignHost, "address %.80q: its member's gossip address %.80q has no IP to compare it with", address, gossipAddr)
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return refuse(refusedHostName, "address %.80q: members prove who they are, so it must be an IP address and not a host name", address)
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

// CheckOffer reports why no other member could use an address that a member with
// that gossip address is about to offer: under the rules, or at all.
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
	return r.CheckAddress(address, gossipAddr)
}
