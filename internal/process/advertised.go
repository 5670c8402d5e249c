package process

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/go-sockaddr"

	"github.com/ringway/ringway/internal/discovery"
)

// advertiseLookup is how long the start waits for the name in --advertise-addr.
const advertiseLookup = 10 * time.Second

// parseAdvertised reads --advertise-addr: an IP address or a name, with a port or without;
// then it has that of --gossip-addr.
func (s *Settings) parseAdvertised(bind netip.AddrPort) (discovery.Seed, error) {
	addr, err := netip.ParseAddrPort(s.AdvertiseAddr)
	if ip, ipErr := netip.ParseAddr(s.AdvertiseAddr); ipErr == nil {
		addr, err = netip.AddrPortFrom(ip, bind.Port()), nil
	}
	switch {
	case err == nil && (addr.Addr().Unmap().IsUnspecified() || addr.Port() == 0):
		return discovery.Seed{}, errors.New("no other host can reach this address")
	case strings.Contains(s.AdvertiseAddr, "+"):
		return discovery.Seed{}, errors.New("it is a seed, not the address of this member")
	}
	seed, err := discovery.ParseSeed(s.AdvertiseAddr, bind.Port())
	if err != nil {
		return seed, errors.New("neither an address nor a name, with a port or without")
	}
	return seed, nil
}

// GossipReach returns the IP:port at which the other members reach this one, and the empty
// string if the settings alone do not determine it; then [Settings.Membership] does.
func (s *Settings) GossipReach() string {
	bind, err := ListenAddr(s.GossipAddr)
	if err != nil {
		return "" // Declare has refused it
	}
	if s.AdvertiseAddr == "" && !bind.Addr().IsUnspecified() {
		return bind.String()
	}
	if seed, err := s.parseAdvertised(bind); err == nil && seed.Addr.IsValid() {
		return seed.Addr.String()
	}
	return ""
}

// advertised returns the IP:port that the member announces; empty for the bound address. A
// name is looked up once, because members know each other by IP address. Without
// --advertise-addr, a member that listens on every interface takes the address that
// memberlist's rule gives: a private one of this host, of the interface with the default
// route if it has one.
func (s *Settings) advertised(bind netip.AddrPort, resolver *discovery.Resolver) (string, error) {
	if s.AdvertiseAddr == "" {
		if !bind.Addr().IsUnspecified() {
			return "", nil
		}
		private := s.privateIP
		if private == nil {
			private = sockaddr.GetPrivateIP
		}
		text, err := private()
		ip, badIP := netip.ParseAddr(text)
		if err != nil {
			return "", fmt.Errorf("--advertise-addr: gossip listens on every interface, and the addresses of this host cannot be read: %w: give the IP:port that the other members reach this one at", err)
		}
		if badIP != nil {
			return "", errors.New("--advertise-addr: gossip listens on every interface, and this host has no private address: give the IP:port that the other members reach this one at")
		}
		return netip.AddrPortFrom(ip, bind.Port()).String(), nil
	}
	seed, err := s.parseAdvertised(bind)
	if err != nil {
		return "", fmt.Errorf("--advertise-addr %q: %w", s.AdvertiseAddr, err)
	}
	if seed.Addr.IsValid() {
		return seed.Addr.String(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), advertiseLookup)
	defer cancel()
	found, err := resolver.LookupHost(ctx, seed.Name, discovery.UseCache)
	if err != nil {
		return "", fmt.Errorf("--advertise-addr: %w: correct the name, or give an IP address", err)
	}
	ip := found.Addrs[0]
	for _, other := range found.Addrs { // the order of the answers must not decide
		if other.Is4() != ip.Is4() {
			if other.Is4() {
				ip = other
			}
		} else if other.Less(ip) {
			ip = other
		}
	}
	return netip.AddrPortFrom(ip, seed.Port).String(), nil
}
