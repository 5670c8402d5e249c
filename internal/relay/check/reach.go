package check

import (
	"fmt"
	"net/netip"
)

// udp: gossip over UDP passes, both ways. Without it members stay alive by TCP and by
// the help of others, and are lost when those have trouble.
func udp(f *Fleet) (found []Finding) {
	for _, p := range f.Pings {
		if p.Err != nil {
			found = append(found, Finding{
				Status: Failed, Subject: p.ID, Passing: true,
				Text:   fmt.Sprintf("%s %s does not answer over UDP at %s", p.Role, p.ID, p.Addr),
				Cause:  "UDP is blocked from here to there or back, or it hangs; while TCP passes it stays a member, and news reach it late",
				Remedy: fmt.Sprintf("let UDP through between this host and %s, both ways, and check that --advertise-addr of %s forwards UDP, too", p.Addr, p.ID),
				Page:   page("udp-blocked"),
			})
		}
	}
	for _, p := range f.Peers {
		if p.Facts == nil || !p.Gone.IsZero() || p.Facts.Back == nil || p.Facts.Back.UDP == "" {
			continue
		}
		found = append(found, Finding{
			Status: Failed, Subject: f.Self.Relay, Passing: true,
			Text:   fmt.Sprintf("%s does not reach %s over UDP at %s", p.ID, f.Self.Relay, f.Self.GossipAddr),
			Cause:  "UDP is blocked between the two hosts; while TCP passes this relay stays a member",
			Remedy: fmt.Sprintf("let UDP through between %s and this host, both ways, and check --advertise-addr here", p.ID),
			Page:   page("udp-blocked"),
		})
	}
	return found
}

func fineUDP(f *Fleet) string {
	if len(f.Pings) == 0 {
		return "no other member to reach over UDP"
	}
	return fmt.Sprintf("%s asked over UDP: all answer", plural(len(f.Pings), "member", "members"))
}

// addresses: what members tell each other can be reached.
func addresses(f *Fleet) (found []Finding) {
	remote := ""
	for id, addr := range f.Addresses {
		if a, err := netip.ParseAddrPort(addr); err == nil && !a.Addr().IsLoopback() && (remote == "" || id < remote) {
			remote = id
		}
	}
	for _, one := range f.all() {
		for _, a := range []struct{ what, addr, remedy string }{
			{"gossip", one.GossipAddr, "set --advertise-addr to the IP:port that the others reach it at"},
			{"peer", one.PeerAddr, "set --peer-addr to an IP that the others reach"},
		} {
			switch addr, err := netip.ParseAddrPort(a.addr); {
			case a.addr == "":
			case err != nil || addr.Addr().IsUnspecified() || addr.Port() == 0:
				found = append(found, Finding{
					Status: Failed, Subject: one.Relay,
					Text:   fmt.Sprintf("%s tells the others the %s address %s, which is nowhere", one.Relay, a.what, a.addr),
					Cause:  "it listens on every interface and was not told which address to name",
					Remedy: a.remedy, Page: page("address-unreachable"),
				})
			case addr.Addr().IsLoopback() && remote != "":
				found = append(found, Finding{
					Status: Failed, Subject: one.Relay,
					Text:   fmt.Sprintf("%s tells the others the %s address %s, and %s is on another host", one.Relay, a.what, a.addr, remote),
					Cause:  "a loopback address is reached from the same host only",
					Remedy: a.remedy, Page: page("address-unreachable"),
				})
			}
		}
	}
	for _, p := range f.Peers {
		if p.Facts != nil && p.Gone.IsZero() && p.Facts.Back != nil && p.Facts.Back.Peer != "" {
			found = append(found, Finding{
				Status: Failed, Subject: f.Self.Relay, Passing: true,
				Text:   fmt.Sprintf("%s cannot connect to %s at %s: %s", p.ID, f.Self.Relay, f.Self.PeerAddr, p.Facts.Back.Peer),
				Cause:  "a firewall is between, or the address is right on this host only; requests that " + p.ID + " forwards here fail",
				Remedy: fmt.Sprintf("let TCP through from %s to %s, or set --peer-addr to an IP that the others reach", p.ID, f.Self.PeerAddr),
				Page:   page("address-unreachable"),
			})
		}
	}
	return found
}

func fineAddresses(f *Fleet) string {
	if len(f.all()) == 1 {
		return "the advertised addresses are addresses; no other relay to try them from"
	}
	return fmt.Sprintf("%d relays reach each other at the addresses they advertise", len(f.all()))
}
