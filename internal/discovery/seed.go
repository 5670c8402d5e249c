package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// seedKind is how a seed is resolved to addresses.
type seedKind uint8

// The kinds of seed.
const (
	kindAddr    seedKind = iota + 1 // an IP address: nothing to look up
	kindHost                        // a host name: A and AAAA records
	kindService                     // a service name: SRV records, each with its own port
)

// Seed is an address or name at which members may be found. Two seeds are equal if they
// mean the same.
type Seed struct {
	// Kind determines which of the other fields are set.
	Kind seedKind
	// Addr is the address of a kindAddr seed.
	Addr netip.AddrPort
	// Name is the lower-case name of a kindHost or kindService seed. With a trailing dot it is
	// looked up without the search list.
	Name string
	// Port is the port of a kindHost seed, 1 to 65535.
	Port uint16
}

// String returns the seed in a form that ParseSeed accepts.
func (s Seed) String() string {
	switch s.Kind {
	case kindAddr:
		return s.Addr.String()
	case kindHost:
		return "dns+" + s.Name + ":" + strconv.Itoa(int(s.Port))
	case kindService:
		return "srv+" + s.Name
	}
	return "no seed"
}

// ParseSeed reads host, host:port, ip, ip:port, [v6]:port, dns+name[:port] or
// srv+_service._proto.name. defaultPort is the port of a seed without one; 0 makes the port
// required. The error contains the seed and what is wrong with it.
func ParseSeed(text string, defaultPort uint16) (Seed, error) {
	seed, err := parseSeed(text, defaultPort)
	if err != nil {
		return Seed{}, fmt.Errorf("seed %.300q: %w", text, err)
	}
	return seed, nil
}

func parseSeed(text string, defaultPort uint16) (Seed, error) {
	if name, ok := strings.CutPrefix(text, "srv+"); ok {
		if strings.Contains(name, ":") {
			return Seed{}, errors.New("an SRV seed has no port: each record names its own")
		}
		name, err := checkServiceName(name)
		return Seed{Kind: kindService, Name: name}, err
	}
	rest, explicit := strings.CutPrefix(text, "dns+")
	host, port, err := splitPort(rest, defaultPort)
	if err != nil {
		return Seed{}, err
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return addrSeed(ip, port, explicit)
	}
	if strings.ContainsAny(rest, "[]") {
		return Seed{}, errors.New("write an IPv6 address with a port as [address]:port")
	}
	name, err := checkName(host)
	if err != nil {
		return Seed{}, err
	}
	if _, err := checkServiceName(name); err == nil {
		return Seed{}, errors.New("for an SRV record write srv+ in front")
	}
	return Seed{Kind: kindHost, Name: name, Port: port}, nil
}

func addrSeed(ip netip.Addr, port uint16, explicit bool) (Seed, error) {
	ip = ip.Unmap()
	switch {
	case explicit:
		return Seed{}, errors.New("dns+ takes a name; leave it away before an IP address")
	case ip.Zone() != "":
		return Seed{}, errors.New("an address with a zone means another host on every machine; give an address without one")
	case ip.IsUnspecified(), ip.IsMulticast():
		return Seed{}, errors.New("no host has this address")
	}
	return Seed{Kind: kindAddr, Addr: netip.AddrPortFrom(ip, port)}, nil
}

// splitPort splits the port off; a bare IPv6 address has none.
func splitPort(text string, defaultPort uint16) (host string, port uint16, err error) {
	host = text
	bare := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	ip, err := netip.ParseAddr(bare)
	if isAddr := err == nil && (bare == text || ip.Is6() && len(bare) == len(text)-2); isAddr || !strings.Contains(text, ":") {
		if isAddr {
			host = bare
		}
		if host == "" {
			return "", 0, errors.New("the host is missing")
		}
		if defaultPort == 0 {
			return "", 0, errors.New("the port is missing")
		}
		return host, defaultPort, nil
	}
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, errors.New("give host, host:port, ip:port or [v6]:port")
	}
	if host == "" {
		return "", 0, errors.New("the host is missing")
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %.20q: allowed are 1 to 65535", portText)
	}
	return host, uint16(n), nil
}

// checkName returns the name in lower case. It allows the characters of host names, and '_'
// for SRV names; a trailing dot (no search list) is kept.
func checkName(name string) (string, error) {
	bare := strings.TrimSuffix(name, ".")
	if bare == "" {
		return "", errors.New("the host name is empty")
	}
	if len(bare) > 253 {
		return "", fmt.Errorf("the host name has %d characters; at most 253 are allowed", len(bare))
	}
	labels := strings.Split(bare, ".")
	for _, label := range labels {
		switch {
		case label == "":
			return "", errors.New("the host name has an empty label")
		case len(label) > 63:
			return "", fmt.Errorf("the label %q has %d characters; at most 63 are allowed", label, len(label))
		case label[0] == '-' || label[len(label)-1] == '-':
			return "", fmt.Errorf("the label %q begins or ends with '-'", label)
		}
		for _, c := range []byte(label) {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !letter && !('0' <= c && c <= '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("%q is not allowed in a host name", c)
			}
		}
	}
	// No top-level domain is a number (RFC 3696), so this is a mistyped IP.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return "", errors.New("neither an IP address nor a host name")
	}
	return strings.ToLower(name), nil
}

// checkServiceName accepts _service._proto.name, as in RFC 2782.
func checkServiceName(name string) (string, error) {
	name, err := checkName(name)
	if err != nil {
		return "", err
	}
	labels := strings.SplitN(name, ".", 3)
	if len(labels) < 3 || labels[2] == "" || len(labels[0]) < 2 || labels[0][0] != '_' || labels[1] != "_udp" && labels[1] != "_tcp" {
		return "", errors.New("an SRV name is written _gossip._udp.name")
	}
	return name, nil
}

// defaultInternalSuffixes are the suffixes of names that are expected to have private
// addresses (HS-C9), including the two that RFC 8375 and RFC 6761 reserve.
var defaultInternalSuffixes = []string{
	".local", ".internal", ".svc", ".cluster.local", ".corp", ".home", ".lan", ".private", ".test",
	".home.arpa", ".localhost",
}

// isInternal reports whether private addresses are expected for the name. A name without a
// dot can only come from a local source.
func isInternal(name string, suffixes []string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !strings.Contains(name, ".") {
		return true
	}
	for _, suffix := range suffixes {
		if strings.HasSuffix(name, "."+strings.Trim(strings.ToLower(suffix), ".")) {
			return true
		}
	}
	return false
}

// shared is the address space between providers and their customers (RFC 6598): not called
// private, but never the address of a public service.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// rules determine which addresses of an answer may be used.
type rules struct {
	allowed      []netip.Prefix
	blockPrivate bool
	internal     []string
	reportOnly   bool
}

// drop is an address that violates a rule.
type drop struct {
	addr   netip.Addr
	reason string
}

// filter returns the usable addresses and those that violate a rule. trusted answers come from the
// operator's own hosts file: the private-address rule does not apply to them.
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
		if reason != "" && (!f.reportOnly || reason == dropUnusable) || slices.Contains(kept, addr) {
			continue
		}
		if len(kept) == maxAddresses { // not among the rules, which may only report
			drops = append(drops, drop{addr, dropMany})
			continue
		}
		kept = append(kept, addr)
	}
	return kept, drops
}

func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || shared.Contains(a)
}

// describe lists at most eight addresses with the rule that each one violates.
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
		case dropMany:
			why = fmt.Sprintf("is one more than the %d of a name that are used", maxAddresses)
		}
		parts = append(parts, d.addr.String()+" "+why)
	}
	return strings.Join(parts, ", ")
}
