package process

import (
	"net"
	"net/netip"
)

// localName is the cluster and the environment of a member whose gossip only this host can
// reach: a first try needs no names, and a member that others reach must not find them by accident.
func (s *Settings) localName() string {
	if _, local := s.loopback(); local {
		return "local"
	}
	return ""
}

// gossipSetting is the name of the setting that these defaults depend on.
const gossipSetting = "gossip-addr"

const localDefault = "local where gossip listens on loopback; otherwise required"

// localRelay is the seed of a worker whose gossip only this host can reach: a relay with the
// default port. A relay has no such seed, because it may be the first member.
func (s *Settings) localRelay() string {
	a, local := s.loopback()
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if a.Addr().Is6() {
		host = netip.IPv6Loopback()
	}
	seed := net.JoinHostPort(host.String(), RelayGossipPort)
	if !local || seed == a.String() {
		return ""
	}
	return seed
}

// loopback returns the gossip address, and whether this member gossips on loopback only.
func (s *Settings) loopback() (netip.AddrPort, bool) {
	a, err := ListenAddr(s.GossipAddr)
	return a, err == nil && a.Addr().IsLoopback() && (s.Gossipless == nil || !s.Gossipless())
}
