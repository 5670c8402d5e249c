package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// shared is the space between providers and their customers (RFC 6598): not
// private by name, but never the address of a public service.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// rules say which addresses of an answer may be used.
type rules struct {
	allowed      []netip.Prefix
	blockPrivate bool
	internal     []string
	reportOnly   bool
}

// drop is an address that a rule objects to.
type drop struct {
	addr   netip.Addr
	reason string
}

// filter returns what may be used and what was objected to. trusted answers come
// from the operator's own hosts file: the private-address rule is not for them.
func (f rules) filter(name string, addrs []netip.Addr, trusted bool) (kept []netip.Addr, drops []drop) {
	public := f.blockPrivate && !trusted && !isInternal(name, f.internal)
	for _, addr := range addrs {
		addr = addr.Unmap()
		reason := ""
		switch {
		case addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			reason = dropUnusable
		case len(f.allowed) > 0 && !slices.ContainsFunc(f.allowed, func(p netip.Prefix) bool { return p.Contains(addr) }):
			reason = dropCIDR
		case public && isPrivate(addr):
			reason = dropPrivate
		}
		if reason != "" {
			drops = append(drops, drop{addr, reason})
		}
		if (reason == "" || f.reportOnly && reason != dropUnusable) && !slices.Contains(kept, addr) {
			kept = append(kept, addr)
		}
	}
	return kept, drops
}

func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || shared.Contains(a)
}

// describe lists the addresses with the rule that each one breaks, at most eight.
func (f rules) describe(drops []drop) string {
	var parts []string
	for i, d := range drops {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("and %d more", len(drops)-i))
			break
		}
		why := "is no address of a host"
		switch d.reason {
		case dropCIDR:
			why = fmt.Sprintf("is outside the allowed CIDRs %v", f.allowed)
		case dropPrivate:
			why = "is private, and the name is public"
		}
		parts = append(parts, d.addr.String()+" "+why)
	}
	return strings.Join(parts, ", ")
}
