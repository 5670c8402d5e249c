package check

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ringway/ringway/internal/api"
)

// ready checks that every relay is ready, since others get no traffic. A relay that an
// operator drained is only a warning.
func ready(f *Fleet) (found []api.Finding) {
	for _, one := range f.all() {
		if len(one.Reasons) == 0 {
			continue
		}
		finding := api.Finding{
			Status: api.Failed, Subject: one.Relay, Passing: true,
			Text:   fmt.Sprintf("%s is not ready: %s", one.Relay, strings.Join(one.Reasons, "; ")),
			Cause:  "load balancers that ask /readyz send it nothing",
			Remedy: fmt.Sprintf("follow the reasons; `relay health --ready` on %s names them as they change", one.Relay),
			Page:   page("relay-not-ready"),
		}
		if one.Reasons[0] == "draining" && len(one.Reasons) == 1 {
			finding.Status, finding.Passing = api.Warning, false
			finding.Cause = "an operator took it out of rotation"
			finding.Remedy = fmt.Sprintf("`relay undrain` on %s, when it should receive traffic again", one.Relay)
			finding.Page = page("drain-forgotten")
		}
		found = append(found, finding)
	}
	return found
}

func fineReady(f *Fleet) string {
	if n := len(f.all()); n > 1 {
		return fmt.Sprintf("all %d relays are ready", n)
	}
	return f.Self.Relay + " is ready"
}

// limits checks that no relay leaves out a part of the fleet because there is more of it than its
// settings allow. Which part it sees is arbitrary, so views and plans of relays differ.
func limits(f *Fleet) (found []api.Finding) {
	for _, one := range f.all() {
		for _, text := range one.Limits {
			found = append(found, api.Finding{
				Status: api.Failed, Subject: one.Relay,
				Text:   fmt.Sprintf("%s has reached a limit: %s", one.Relay, text),
				Cause:  "the fleet is larger than its settings allow; members and services beyond the limit get no requests, and which ones they are differs between relays",
				Remedy: "raise --max-members on all members, or --max-services on all relays, and restart them one after the other; first find out whether the new ones are yours",
				Page:   page("limit-reached"),
			})
		}
	}
	return found
}

func fineLimits(*Fleet) string { return "no relay leaves out members or services because of a limit" }

// viewTrusted checks that no relay may be cut off. Such a relay keeps its peers.
func viewTrusted(f *Fleet) (found []api.Finding) {
	explained := f.onlyWorkersStopped()
	for _, one := range f.all() {
		if one.Degraded {
			finding := api.Finding{
				Status: api.Failed, Subject: one.Relay, Passing: true,
				Text:   fmt.Sprintf("%s lost much of the cluster at the same time", one.Relay),
				Cause:  "it may be cut off, and keeps its connections until it knows",
				Remedy: fmt.Sprintf("allow TCP and UDP for gossip between %s and the other members; if they really died, it accepts that within minutes", one.Relay),
				Page:   page("view-degraded"),
			}
			if explained {
				finding = consequence(finding)
			}
			found = append(found, finding)
		}
	}
	return found
}

func fineTrusted(*Fleet) string { return "no relay is degraded" }

// unproven checks that the gossip of every member is proven.
func unproven(f *Fleet) (found []api.Finding) {
	for _, one := range f.all() {
		for _, u := range one.Unproven {
			found = append(found, api.Finding{
				Status: api.Failed, Subject: u.Member,
				Text:   fmt.Sprintf("%s leaves %s out: %s", one.Relay, u.Member, u.Reason),
				Cause:  "its settings and its certificate name different identities, its certificate is refused, its release does not sign gossip, or its gossip is forged",
				Remedy: fmt.Sprintf("give %s a certificate for its --id, --role and --datacenter, and the release that the others run; if it is not yours, rotate the gossip keys", u.Member),
				Page:   page("member-unproven"),
			})
		}
	}
	return found
}

func fineUnproven(*Fleet) string { return "every member in gossip is proven" }

// refusals checks that no process failed to become a member at this relay. No other check misses a
// process that never joined.
func refusals(f *Fleet) (found []api.Finding) {
	for _, one := range f.Strangers {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: one.Host,
			Text:   fmt.Sprintf("a process at %s did not become a member, %s, the last time %s ago: %v", one.Host, plural(one.Count, "time", "times"), span(f.Now.Sub(one.Last)), one.Err),
			Cause:  "it is not in the fleet and gets no requests; the fleet is not affected",
			Remedy: fmt.Sprintf("if it is yours, correct that; `relay health --ready` or `worker health --ready` on %s has its side. If not, close the gossip port to it", one.Host),
			Page:   page("refusals"),
		})
	}
	return found
}

func fineRefusals(f *Fleet) string {
	return fmt.Sprintf("%s refused no process that wanted to be a member in the last ten minutes", f.Self.Relay)
}

// udp checks that gossip over UDP passes in both directions. Without it, members are kept
// alive by TCP and through other members, and are lost when these have problems.
func udp(f *Fleet) (found []api.Finding) {
	for _, p := range f.Pings {
		if p.Err != nil && p.TCP == nil { // otherwise workersAnswer or relaysAnswer reports it
			found = append(found, api.Finding{
				Status: api.Failed, Subject: p.ID, Passing: true,
				Text:   fmt.Sprintf("%s %s does not answer over UDP at %s", p.Role, p.ID, p.Addr),
				Cause:  "UDP is blocked from here to there or back, or it hangs; while TCP passes it stays a member, and news reach it late",
				Remedy: fmt.Sprintf("allow UDP between this host and %s, both ways, and check that --advertise-addr of %s forwards UDP, too", p.Addr, p.ID),
				Page:   page("udp-blocked"),
			})
		}
	}
	for _, p := range f.Peers {
		if p.Facts == nil || !p.Gone.IsZero() || p.Facts.Back == nil || p.Facts.Back.UDP == "" {
			continue
		}
		found = append(found, api.Finding{
			Status: api.Failed, Subject: f.Self.Relay, Passing: true,
			Text:   fmt.Sprintf("%s does not reach %s over UDP at %s", p.ID, f.Self.Relay, f.Self.GossipAddr),
			Cause:  "UDP is blocked between the two hosts; while TCP passes this relay stays a member",
			Remedy: fmt.Sprintf("allow UDP between %s and this host, both ways, and check --advertise-addr here", p.ID),
			Page:   page("udp-blocked"),
		})
	}
	return found
}

func fineUDP(f *Fleet) string {
	if len(f.Pings) == 0 {
		return "no other member to reach over UDP"
	}
	silent := 0 // over TCP, too: workersAnswer or relaysAnswer reports them
	for _, p := range f.Pings {
		if p.Err != nil {
			silent++
		}
	}
	asked := plural(len(f.Pings), "member", "members")
	if silent > 0 {
		return fmt.Sprintf("%s asked over UDP: %d answer; the others do not answer over TCP either", asked, len(f.Pings)-silent)
	}
	return asked + " asked over UDP: all answer"
}

// addresses checks that the advertised addresses can be reached.
func addresses(f *Fleet) (found []api.Finding) {
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
				found = append(found, api.Finding{
					Status: api.Failed, Subject: one.Relay,
					Text:   fmt.Sprintf("%s announces the %s address %s, which no host has", one.Relay, a.what, a.addr),
					Cause:  "it listens on every interface, and no address to announce is set",
					Remedy: a.remedy, Page: page("address-unreachable"),
				})
			case addr.Addr().IsLoopback() && remote != "":
				found = append(found, api.Finding{
					Status: api.Failed, Subject: one.Relay,
					Text:   fmt.Sprintf("%s announces the %s address %s, and %s is on another host", one.Relay, a.what, a.addr, remote),
					Cause:  "a loopback address is reached from the same host only",
					Remedy: a.remedy, Page: page("address-unreachable"),
				})
			}
		}
	}
	for _, p := range f.Peers {
		if p.Facts != nil && p.Gone.IsZero() && p.Facts.Back != nil && p.Facts.Back.Peer != "" {
			found = append(found, api.Finding{
				Status: api.Failed, Subject: f.Self.Relay, Passing: true,
				Text:   fmt.Sprintf("%s cannot connect to %s at %s: %s", p.ID, f.Self.Relay, f.Self.PeerAddr, p.Facts.Back.Peer),
				Cause:  "a firewall is between, or the address is right on this host only; requests that " + p.ID + " forwards here fail",
				Remedy: fmt.Sprintf("allow TCP from %s to %s, or set --peer-addr to an IP that the others reach", p.ID, f.Self.PeerAddr),
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
