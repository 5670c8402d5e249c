package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/ringway/ringway/internal/procs"
)

// The 13 scenarios of the source's DNS discovery (test_dns_discovery.py), each as
// a promise of a Finder on a real resolver and a real DNS server; the source ran
// them on a stand-in that did the caching and the filtering itself, so most could
// not fail. Those marked "bites" asserted nothing that could fail there, or less
// than their text states. The details are in the tests of the resolver and the
// finder.
func TestWhatTheSourceTestedOfDiscovery(t *testing.T) {
	for _, c := range []struct {
		source string
		holds  func(t *testing.T)
	}{
		{"dns_discovery_basic", func(t *testing.T) { // bites: the default port, in the order of the answer
			f := discover(t, "managers.test.local", "10.0.0.3", "10.0.0.1", "10.0.0.2")
			expect(t, f.Finder, "10.0.0.3:7400", "10.0.0.1:7400", "10.0.0.2:7400")
			again := f.newFinder(t, Config{Seeds: []string{"managers.test.local"}, DefaultPort: 9000})
			mustRefresh(t, again)
			expect(t, again, "10.0.0.3:9000", "10.0.0.1:9000", "10.0.0.2:9000")
		}},
		{"dns_discovery_caching", func(t *testing.T) { // bites: what a refresh lists, in addition to the queries
			f := discover(t, "cached.test.local", "10.0.1.1") // with a TTL of 60 s
			asked := func(want int) {
				t.Helper()
				if n := f.server.count("cached.test.local A"); n != want {
					t.Fatalf("%d queries, want %d", n, want)
				}
			}
			asked(1)
			f.server.set("cached.test.local", 60, "10.0.1.2")
			f.useCache(t)
			asked(1)
			expect(t, f.Finder, "10.0.1.1:7400")
			mustRefresh(t, f.Finder)
			asked(2)
			expect(t, f.Finder, "10.0.1.2:7400", "10.0.1.1:7400")
			f.clock.pass(59 * time.Second)
			f.useCache(t)
			asked(2)
			f.clock.pass(time.Second)
			f.useCache(t)
			asked(3)
		}},
		{"dns_discovery_failure_handling", func(t *testing.T) { // bites: the failure is reported, with the seed
			f := discover(t, "working.test.local", "10.0.2.1", "10.0.2.2")
			both := f.newFinder(t, Config{Seeds: []string{"broken.test.local", "working.test.local"}})
			if err := both.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "broken.test.local") || strings.Contains(err.Error(), "working.test.local") {
				t.Errorf("got %v, want the broken name and no other", err)
			}
			expect(t, both, "10.0.2.1:7400", "10.0.2.2:7400")
			if s := both.statuses(); s[0].Err == nil || s[1].Err != nil {
				t.Errorf("status %+v", s)
			}
		}},
		{"dns_discovery_recovery", func(t *testing.T) { // bites: the failure ends without a command
			f := discover(t, "recovery.test.local")
			f.server.fail("recovery.test.local", dns.RcodeServerFailure)
			if err := f.Refresh(t.Context()); err == nil || len(f.Addrs()) != 0 {
				t.Fatalf("got %v, %v", f.Addrs(), err)
			}
			f.server.set("recovery.test.local", 60, "10.0.3.1", "10.0.3.2", "10.0.3.3")
			if err := f.Recheck(t.Context(), time.Hour); err == nil {
				t.Error("asked again while the failure still counts")
			}
			f.clock.pass(30 * time.Second)
			f.useCache(t)
			expect(t, f.Finder, "10.0.3.1:7400", "10.0.3.2:7400", "10.0.3.3:7400")
		}},
		{"dns_discovery_multi_name", func(t *testing.T) { // bites: the overlap that its text promised
			f := discover(t, "primary.test.local", "10.0.4.1", "10.0.4.2")
			f.server.set("secondary.test.local", 60, "10.0.4.2", "10.0.4.3")
			f.server.set("tertiary.test.local", 60, "10.0.4.1", "10.0.4.4")
			many := f.newFinder(t, Config{Seeds: []string{"primary.test.local", "secondary.test.local", "tertiary.test.local", "primary.test.local"}})
			mustRefresh(t, many)
			expect(t, many, "10.0.4.1:7400", "10.0.4.2:7400", "10.0.4.3:7400", "10.0.4.4:7400")
			if n := len(many.statuses()); n != 3 {
				t.Errorf("%d seeds, want 3: one is there twice", n)
			}
		}},
		{"dns_discovery_security_validation", func(t *testing.T) { // bites: the filter is the resolver's, not the test's
			f := discover(t, "mixed.test.local", "10.0.5.1", "192.168.1.1", "10.0.5.2", "172.16.0.1")
			guarded := f.guarded(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"10.0.0.0/8"} }, "mixed.test.local")
			mustRefresh(t, guarded.Finder)
			expect(t, guarded.Finder, "10.0.5.1:7400", "10.0.5.2:7400")
			guarded.dropped(t, dropCIDR, 2)
		}},
		// What follows a discovered address, to the connection and its end, is in
		// selection/client.
		{"dns_discovery_peer_lifecycle", func(t *testing.T) { // bites: an address that leaves leaves the list
			f := discover(t, "lifecycle.test.local", "10.0.6.1", "10.0.6.2")
			f.server.set("lifecycle.test.local", 60, "10.0.6.2", "10.0.6.3")
			mustRefresh(t, f.Finder)
			expect(t, f.Finder, "10.0.6.2:7400", "10.0.6.3:7400", "10.0.6.1:7400")
			mustRefresh(t, f.Finder)
			mustRefresh(t, f.Finder)
			expect(t, f.Finder, "10.0.6.2:7400", "10.0.6.3:7400")
		}},
		{"dns_discovery_real_localhost", func(t *testing.T) { // bites: both families, and no query
			f := discover(t, "localhost", "203.0.113.1")
			expect(t, f.Finder, "127.0.0.1:7400", "[::1]:7400")
			if n := f.server.count("localhost A") + f.server.count("localhost AAAA"); n != 0 {
				t.Errorf("DNS was asked %d times", n)
			}
		}},
		{"dns_discovery_scaling", func(t *testing.T) { // bites: more than fits into a datagram, and none twice
			for _, n := range []int{10, 50, 100, 1000} {
				var many []string
				for i := range n {
					many = append(many, fmt.Sprintf("10.1.%d.%d", i/256, i%256))
				}
				f := discover(t, "scaled.test.local")
				f.server.truncate(0)
				f.server.set("scaled.test.local", 60, many...)
				mustRefresh(t, f.Finder)
				got := f.Addrs()
				if len(got) != n {
					t.Errorf("%d addresses, want %d", len(got), n)
				}
				listed := make(map[netip.AddrPort]bool)
				for _, a := range got {
					listed[a] = true
				}
				if len(listed) != n {
					t.Errorf("%d different addresses, want %d", len(listed), n)
				}
			}
		}},
		{"dns_srv_ports", func(t *testing.T) { // the default port belongs to no member
			f := discoverService(t, "1 1 9001 a.example.", "1 1 9002 b.example.")
			got := f.Addrs()
			slices.SortFunc(got, netip.AddrPort.Compare)
			if !slices.Equal(got, addrPorts("10.0.0.1:9001", "10.0.0.2:9002")) {
				t.Errorf("got %v", got)
			}
		}},
		{"dns_srv_fallback", func(t *testing.T) { // bites: the good target stands though another fails
			f := discoverService(t, "1 1 9001 absent.example.", "2 1 9002 b.example.")
			expect(t, f.Finder, "10.0.0.2:9002")
			if s := f.statuses()[0]; s.Err == nil || !strings.Contains(s.Err.Error(), "absent.example") {
				t.Errorf("the status does not name the target that fails: %+v", s)
			}
		}},
		{"dns_srv_sort", func(t *testing.T) { // bites: every time, as the weight makes a choice only within a priority
			for range 20 {
				f := discoverService(t, "20 100 9003 c.example.", "10 1 9001 a.example.", "15 100 9002 b.example.")
				expect(t, f.Finder, "10.0.0.1:9001", "10.0.0.2:9002", "10.0.0.3:9003")
			}
		}},
		{"dns_srv_and_a_mixed", func(t *testing.T) { // bites: one address under two ports is two
			f := discoverService(t, "1 1 9001 a.example.")
			mixed := f.newFinder(t, Config{Seeds: []string{"a.example", "srv+" + gossip, "10.0.0.1:9001", "10.0.0.9"}})
			mustRefresh(t, mixed)
			expect(t, mixed, "10.0.0.1:7400", "10.0.0.1:9001", "10.0.0.9:7400")
			f.server.set("alias.example", 60, "10.0.0.1")
			f.server.records(gossip, "SRV", gossip+". 60 IN SRV 1 1 9001 a.example.", gossip+". 60 IN SRV 2 1 9001 alias.example.")
			mustRefresh(t, mixed)
			if got := mixed.statuses()[1].Addrs; !slices.Equal(got, addrPorts("10.0.0.1:9001")) {
				t.Errorf("two targets with one address lead to %v", got)
			}
		}},
	} {
		t.Run(c.source, c.holds)
	}
}

// The source's caching scenario called for a discovery itself; what repeats one
// without being asked must spare the server, too.
func TestRunAsksForNothingThatStillCounts(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("cached.test.local", 60, "10.0.1.1")
	var refreshes atomic.Int32
	f := g.newFinder(t, Config{
		Seeds: []string{"cached.test.local"}, RefreshInterval: time.Millisecond, RefreshJitter: -1,
		Exclude: func(netip.AddrPort) bool { refreshes.Add(1); return false },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	procs.Await(t, "ten refreshes", func() bool { return refreshes.Load() >= 10 })
	if n := g.server.count("cached.test.local A"); n != 1 {
		t.Errorf("%d queries for an answer with a TTL of 60 s, want 1", n)
	}
	g.clock.pass(time.Minute)
	procs.Await(t, "a query after the TTL", func() bool { return g.server.count("cached.test.local A") == 2 })
	cancel()
	running.Wait()
}

// The 8 scenarios of the source's DNS security (test_dns_security.py). It tried
// its rules by themselves; here each answer comes over the wire, and what a rule
// lets through is what members will be dialled at.
func TestWhatTheSourceTestedOfDNSSecurity(t *testing.T) {
	private := []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}
	for _, c := range []struct {
		source string
		holds  func(t *testing.T)
	}{
		{"ip_range_validation_allows_in_range", func(t *testing.T) { // bites: the first and the last of each network
			judge(t, func(c *ResolverConfig) { c.AllowedCIDRs = private }, dropCIDR, verdicts{
				{"gate.local", "10.0.0.0", true}, {"gate.local", "10.255.255.255", true},
				{"gate.local", "172.16.0.1", true}, {"gate.local", "172.31.255.255", true},
				{"gate.local", "192.168.0.0", true}, {"gate.local", "192.168.255.254", true},
			})
		}},
		{"ip_range_validation_rejects_out_of_range", func(t *testing.T) { // bites: the neighbours of each network
			judge(t, func(c *ResolverConfig) { c.AllowedCIDRs = private }, dropCIDR, verdicts{
				{"gate.local", "9.255.255.255", false}, {"gate.local", "11.0.0.0", false},
				{"gate.local", "172.15.255.255", false}, {"gate.local", "172.32.0.0", false},
				{"gate.local", "192.167.255.255", false}, {"gate.local", "192.169.0.0", false}, {"gate.local", "8.8.8.8", false},
			})
		}},
		{"rapid_ip_rotation_detection", func(t *testing.T) { // bites: not at the third change, and at the fourth
			f := discover(t, "suspicious.local", "10.0.0.0")
			guarded := f.guarded(t, func(c *ResolverConfig) { c.RejectFlux, c.MaxChanges, c.ChangeWindow = true, 3, time.Minute }, "suspicious.local")
			mustRefresh(t, guarded.Finder)
			for change := 1; change <= 4; change++ {
				f.server.set("suspicious.local", 60, fmt.Sprintf("10.0.0.%d", change))
				err := guarded.Refresh(t.Context())
				if refused := err != nil && strings.Contains(err.Error(), "changed more than 3 times"); refused != (change > 3) {
					t.Errorf("change %d: %v", change, err)
				}
			}
			if newest := guarded.Addrs()[0]; newest != addrPorts("10.0.0.3:7400")[0] {
				t.Errorf("%v is listed first, want the last answer before the refusal", newest)
			}
		}},
		{"dns_rebinding_protection", func(t *testing.T) {
			judge(t, func(c *ResolverConfig) { c.BlockPrivateForPublic = true }, dropPrivate, verdicts{
				{"manager.local", "10.0.0.1", true}, {"service.internal", "172.16.0.1", true}, {"app.svc.cluster.local", "192.168.1.1", true},
				{"api.example.com", "10.0.0.1", false}, {"service.example.org", "192.168.1.1", false}, {"app.malicious.com", "127.0.0.1", false},
				{"api.example.com", "8.8.8.8", true}, {"service.example.org", "1.1.1.1", true},
				// An internal name within a public one is public.
				{"manager.local.malicious.com", "10.0.0.1", false}, {"local.malicious.com", "10.0.0.1", false}, {"notinternal", "10.0.0.1", true},
			})
		}},
		{"security_event_logging", func(t *testing.T) { // bites: "some events" were enough; a log line and a count for each rule
			f := discover(t, "host1.local", "192.168.1.1", "10.0.0.1")
			f.server.set("host2.example.com", 60, "10.0.0.2", "203.0.113.1")
			f.server.set("host3.local", 60, "10.0.0.3")
			g := f.guarded(t, func(c *ResolverConfig) {
				c.AllowedCIDRs, c.BlockPrivateForPublic = []string{"10.0.0.0/8", "203.0.113.0/24"}, true
				c.RejectFlux, c.MaxChanges = true, 1
			}, "host1.local", "host2.example.com", "host3.local")
			mustRefresh(t, g.Finder)
			g.dropped(t, dropCIDR, 1)
			g.dropped(t, dropPrivate, 1)
			g.dropped(t, dropFlux, 0)
			for i := range 2 {
				f.server.set("host3.local", 60, fmt.Sprintf("10.0.1.%d", i))
				_ = g.Refresh(t.Context())
			}
			g.dropped(t, dropFlux, 1)
			for text, lines := range map[string]int{"192.168.1.1 is outside": 1, "10.0.0.2 is private": 1, "change too often": 1} {
				if n := g.log.Lines(text); n != lines {
					t.Errorf("%q was logged %d times over three refreshes, want %d", text, n, lines)
				}
			}
		}},
		{"resolver_security_integration", func(t *testing.T) { // bites: it looked whether the rule is on; here it refuses, too
			f := discover(t, "relay.local", "10.0.0.1")
			g := f.guarded(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"127.0.0.0/8"} }, "localhost", "relay.local")
			if err := g.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "relay.local") || !strings.Contains(err.Error(), "10.0.0.1 is outside") {
				t.Errorf("got %v", err)
			}
			expect(t, g.Finder, "127.0.0.1:7400")
		}},
		{"batch_ip_validation", func(t *testing.T) {
			f := discover(t, "service.local", "10.0.0.1", "192.168.1.1", "172.16.0.1", "10.0.0.2", "8.8.8.8", "192.168.2.1")
			rules := func(c *ResolverConfig) { c.AllowedCIDRs = []string{"10.0.0.0/8", "192.168.0.0/16"} }
			g := f.guarded(t, rules, "service.local")
			mustRefresh(t, g.Finder)
			expect(t, g.Finder, "10.0.0.1:7400", "192.168.1.1:7400", "10.0.0.2:7400", "192.168.2.1:7400")
			g.dropped(t, dropCIDR, 2)
			g = f.guarded(t, func(c *ResolverConfig) { rules(c); c.ReportOnly = true }, "service.local")
			mustRefresh(t, g.Finder)
			g.dropped(t, dropCIDR, 2)
			if n := len(g.Addrs()); n != 6 {
				t.Errorf("%d addresses where rules only report, want all 6", n)
			}
		}},
		{"ipv6_validation", func(t *testing.T) { // bites: a version 4 address in the clothes of version 6, too
			judge(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"10.0.0.0/8", "2001:db8::/32", "fd00::/8"} }, dropCIDR, verdicts{
				{"host.local", "10.0.0.1", true}, {"host.local", "2001:db8::1", true}, {"host.local", "fd00::1", true},
				{"host.local", "2607:f8b0:4004:800::200e", false}, {"host.local", "::1", false},
				{"host.local", "2001:db9::1", false}, {"host.local", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", false},
			})
			judge(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"::/0"} }, dropCIDR, verdicts{{"host.local", "::ffff:8.8.8.8", false}})
			judge(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"10.0.0.0/8"} }, dropCIDR, verdicts{{"host.local", "::ffff:10.0.0.1", true}})
			path := writeFile(t, "::ffff:10.0.0.1 mapped\n::ffff:8.8.8.8 mapped\n")
			g := newRig(t, func(c *ResolverConfig) { c.HostsFile, c.AllowedCIDRs = path, []string{"10.0.0.0/8"} })
			if got := g.host(t, "mapped", UseCache).Addrs; !slices.Equal(got, addrs("10.0.0.1")) {
				t.Errorf("from the hosts file: %v", got)
			}
		}},
	} {
		t.Run(c.source, c.holds)
	}
}

// discovery is a finder with the rig that it runs on.
type discovery struct {
	*rig
	*Finder
}

// discover refreshes a finder of one name, whose records have a TTL of 60 s.
// Without addresses it refreshes nothing.
func discover(t *testing.T, name string, addresses ...string) discovery {
	t.Helper()
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{name}})
	if len(addresses) > 0 {
		g.server.set(name, 60, addresses...)
		mustRefresh(t, f)
	}
	return discovery{g, f}
}

// discoverService refreshes a finder of one service. The hosts a, b and c have the
// addresses 10.0.0.1 to 10.0.0.3.
func discoverService(t *testing.T, records ...string) discovery {
	t.Helper()
	g := newRig(t, nil)
	for i, host := range []string{"a.example", "b.example", "c.example"} {
		g.server.set(host, 60, fmt.Sprintf("10.0.0.%d", i+1))
	}
	lines := make([]string, len(records))
	for i, r := range records {
		lines[i] = gossip + ". 60 IN SRV " + r
	}
	g.server.records(gossip, "SRV", lines...)
	f := g.newFinder(t, Config{Seeds: []string{"srv+" + gossip}})
	if err := f.Refresh(t.Context()); err != nil && len(f.Addrs()) == 0 {
		t.Fatal(err)
	}
	return discovery{g, f}
}

// guarded is a finder of names of the same server under rules of its own.
func (d discovery) guarded(t *testing.T, rules func(*ResolverConfig), names ...string) discovery {
	t.Helper()
	g := newRig(t, func(c *ResolverConfig) {
		c.Servers = []string{d.server.addr}
		rules(c)
	})
	return discovery{g, g.newFinder(t, Config{Seeds: names})}
}

// useCache refreshes without asking for what still counts.
func (d discovery) useCache(t *testing.T) {
	t.Helper()
	if err := d.Recheck(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
}

func (d discovery) dropped(t *testing.T, reason string, want float64) {
	t.Helper()
	if got := metricValue(t, d.metrics, "ringway_discovery_dropped_addresses_total", reason); got != want {
		t.Errorf("%v addresses dropped as %s, want %v", got, reason, want)
	}
}

// verdicts list which addresses of a name a rule lets through.
type verdicts []struct {
	name, addr string
	passes     bool
}

// judge looks each address up as the only one of its name. One that is refused
// must be refused for the reason, and leave no address behind.
func judge(t *testing.T, rules func(*ResolverConfig), reason string, cases verdicts) {
	t.Helper()
	for _, c := range cases {
		g := newRig(t, rules)
		g.server.set(c.name, 60, c.addr)
		f := g.newFinder(t, Config{Seeds: []string{c.name}})
		err := f.Refresh(t.Context())
		var want []netip.AddrPort
		if c.passes {
			want = append(want, netip.AddrPortFrom(netip.MustParseAddr(c.addr).Unmap(), defaultPort))
		}
		if got := f.Addrs(); !slices.Equal(got, want) || (err == nil) != c.passes {
			t.Errorf("%s at %s: listed %v, error %v; want passed %v", c.name, c.addr, got, err, c.passes)
		}
		dropped := 0.0
		if !c.passes {
			dropped = 1
		}
		discovery{g, f}.dropped(t, reason, dropped)
	}
}
