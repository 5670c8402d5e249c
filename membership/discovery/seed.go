package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Kind says how a seed becomes addresses.
type Kind uint8

// The kinds of seed.
const (
	KindAddr    Kind = iota + 1 // an IP address: nothing to look up
	KindHost                    // a host name: A and AAAA records
	KindService                 // a service name: SRV records, each with its own port
)

// Seed is one place to look for members. Two seeds are equal when they mean the
// same.
type Seed struct {
	// Kind says which of the other fields are set.
	Kind Kind
	// Addr is the address of a KindAddr seed.
	Addr netip.AddrPort
	// Name is the lower-case name of a KindHost or KindService seed. With a
	// trailing dot it is looked up as it stands, without the search list.
	Name string
	// Port is the port of a KindHost seed, 1 to 65535.
	Port uint16
}

// String writes the seed in a form that ParseSeed takes.
func (s Seed) String() string {
	switch s.Kind {
	case KindAddr:
		return s.Addr.String()
	case KindHost:
		return "dns+" + s.Name + ":" + strconv.Itoa(int(s.Port))
	case KindService:
		return "srv+" + s.Name
	}
	return "no seed"
}

// ParseSeed reads host, host:port, ip, ip:port, [v6]:port, dns+name[:port] or
// srv+_service._proto.name. defaultPort is for a seed that names none; 0 makes
// the port compulsory. The error quotes the seed and says what is wrong with it.
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
		return Seed{Kind: KindService, Name: name}, err
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
	return Seed{Kind: KindHost, Name: name, Port: port}, nil
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
	return Seed{Kind: KindAddr, Addr: netip.AddrPortFrom(ip, port)}, nil
}

// splitPort cuts the port off; a bare IPv6 address has none.
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
