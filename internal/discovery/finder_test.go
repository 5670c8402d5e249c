package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/ringway/ringway/internal/procs"
)

// newFinder makes a Finder on the rig's resolver, with the rig's log.
func (g *rig) newFinder(t *testing.T, cfg Config) *Finder {
	t.Helper()
	cfg.Resolver, cfg.Logger = g.Resolver, slog.New(slog.NewTextHandler(g.log, nil))
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustRefresh(t *testing.T, f *Finder) {
	t.Helper()
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, f *Finder, want ...string) {
	t.Helper()
	if got := f.Addrs(); !slices.Equal(got, addrPorts(want...)) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// statuses returns the state of each seed.
func (f *Finder) statuses() []seedStatus { return slices.Clone(f.current.Load().seeds) }

func TestAddressSeedsAreThereImmediatelyAndAlways(t *testing.T) {
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"10.0.0.9:1", "relay.example", "[::1]:2", "10.0.0.9:1"}})
	expect(t, f, "10.0.0.9:1", "[::1]:2")
	for range 5 {
		if err := f.Refresh(t.Context()); err == nil {
			t.Fatal("an unknown name resolved")
		}
		expect(t, f, "10.0.0.9:1", "[::1]:2")
	}
}

func TestSeedsOfEveryKindAreListedInTheirOrder(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.2", "10.0.0.1")
	g.server.set("other.example", 60, "10.0.1.1", "10.0.0.1")
	g.server.records(gossip, "SRV", gossip+". 60 IN SRV 2 1 7402 relay.example.", gossip+". 60 IN SRV 1 1 7401 other.example.")
	f := g.newFinder(t, Config{Seeds: []string{"relay.example", "srv+" + gossip, "dns+other.example:7400"}})
	mustRefresh(t, f)
	expect(t, f,
		"10.0.0.2:7400", "10.0.0.1:7400",
		"10.0.1.1:7401", "10.0.0.1:7401", "10.0.0.2:7402", "10.0.0.1:7402",
		"10.0.1.1:7400")
}

func TestANameThatFailsDoesNotStopTheRest(t *testing.T) { // HS-C14
	g := newRig(t, func(c *ResolverConfig) { c.Timeout = 500 * time.Millisecond })
	g.server.hang("silent.example")
	g.server.fail("broken.example", dns.RcodeServerFailure)
	g.server.set("relay.example", 60, "10.0.0.1")
	f := g.newFinder(t, Config{Seeds: []string{"silent.example", "absent.example", "broken.example", "relay.example"}})
	for range 3 {
		err := f.Refresh(t.Context())
		for _, want := range []string{"silent.example", "no answer within", "absent.example", "NXDOMAIN", "broken.example", "SERVFAIL"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		expect(t, f, "10.0.0.1:7400")
	}
	if n := g.log.Lines("a seed does not resolve"); n != 3 {
		t.Errorf("%d lines for three seeds that fail all the time, want one each", n)
	}
	g.server.set("broken.example", 60, "10.0.0.2")
	_ = f.Refresh(t.Context())
	if n := g.log.Lines("a seed resolves again"); n != 1 {
		t.Errorf("the recovery was said %d times", n)
	}
	for _, s := range f.statuses() {
		if ok := strings.HasPrefix(s.Seed.Name, "relay") || strings.HasPrefix(s.Seed.Name, "broken"); ok != (s.Err == nil) || ok != (len(s.Addrs) == 1) {
			t.Errorf("status %+v", s)
		}
	}
}

func TestAnAddressIsDroppedAfterThreeAnswersWithoutIt(t *testing.T) { // HS-C14
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	g.server.set("relay.example", 60, "10.0.0.1", "10.0.0.2")
	mustRefresh(t, f)
	g.server.set("relay.example", 60, "10.0.0.2")
	for range 2 {
		mustRefresh(t, f)
		expect(t, f, "10.0.0.2:7400", "10.0.0.1:7400")
	}
	g.server.set("relay.example", 60, "10.0.0.2", "10.0.0.1")
	mustRefresh(t, f) // it came back: the count begins anew
	g.server.set("relay.example", 60, "10.0.0.2")
	for range 2 {
		mustRefresh(t, f)
		expect(t, f, "10.0.0.2:7400", "10.0.0.1:7400")
	}
	mustRefresh(t, f)
	expect(t, f, "10.0.0.2:7400")
}

func TestOnlyNewAnswersCountAgainstAnAddress(t *testing.T) {
	g := newRig(t, func(c *ResolverConfig) { c.Timeout = 500 * time.Millisecond })
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	g.server.set("relay.example", 300, "10.0.0.1", "10.0.0.2")
	mustRefresh(t, f)
	g.server.set("relay.example", 300, "10.0.0.2")
	mustRefresh(t, f) // one
	for range 10 {    // the same answer from the cache
		if err := f.Recheck(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		expect(t, f, "10.0.0.2:7400", "10.0.0.1:7400")
	}
	g.server.stop()
	for range 4 { // failures
		if err := f.Refresh(t.Context()); err == nil {
			t.Fatal("a dead server answered")
		}
		expect(t, f, "10.0.0.2:7400", "10.0.0.1:7400")
	}
	if s := f.statuses()[0]; !s.Stale || s.Err == nil {
		t.Errorf("status %+v, want stale with a reason", s)
	}
}

func TestHalfAnAnswerCountsAgainstNoAddress(t *testing.T) {
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"relay.example", "srv+" + gossip}})
	g.server.set("relay.example", 60, "10.0.0.1", "2001:db8::1")
	g.server.set("a.example", 60, "10.0.1.1")
	g.server.set("b.example", 60, "10.0.1.2")
	g.server.records(gossip, "SRV", gossip+". 60 IN SRV 1 1 7401 a.example.", gossip+". 60 IN SRV 2 1 7402 b.example.")
	mustRefresh(t, f)
	g.server.fail("relay.example AAAA", dns.RcodeServerFailure)
	g.server.fail("a.example", dns.RcodeServerFailure)
	g.Invalidate("a.example")
	for range 5 {
		_ = f.Refresh(t.Context())
		expect(t, f, "10.0.0.1:7400", "[2001:db8::1]:7400", "10.0.1.2:7402", "10.0.1.1:7401")
	}
}

// Some servers fail for AAAA records always, and a target of an SRV record may be gone for good.
func TestAFailureThatLastsKeepsNoOtherAddresses(t *testing.T) {
	g := newRig(t, nil)
	hosts := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	services := g.newFinder(t, Config{Seeds: []string{"srv+" + gossip}})
	g.server.fail("relay.example AAAA", dns.RcodeServerFailure)
	g.server.set("a.example", 60, "10.0.1.1")
	g.server.records(gossip, "SRV", gossip+". 60 IN SRV 1 1 7401 a.example.", gossip+". 60 IN SRV 2 1 7402 b.example.", gossip+". 60 IN SRV 2 1 7403 c.example.")
	for n := range 50 {
		g.server.set("relay.example", 60, fmt.Sprintf("10.1.0.%d", n))
		g.server.fail("relay.example AAAA", dns.RcodeServerFailure)
		g.server.set("b.example", 60, fmt.Sprintf("10.2.0.%d", n))
		if n == 1 { // c.example has never resolved, a.example did
			g.server.fail("a.example", dns.RcodeServerFailure)
		}
		_, _ = hosts.Refresh(t.Context()), services.Refresh(t.Context())
	}
	if got := hosts.Addrs(); len(got) > 4 || !slices.Contains(got, netip.MustParseAddrPort("10.1.0.49:7400")) {
		t.Errorf("of a host with one failing family: %d addresses %v", len(got), got)
	}
	for _, want := range []string{"10.0.1.1:7401", "10.2.0.49:7402"} {
		if got := services.Addrs(); len(got) > 5 || !slices.Contains(got, netip.MustParseAddrPort(want)) {
			t.Errorf("of a service with failing targets: %d addresses %v, without %s", len(got), got, want)
		}
	}
}

func TestAClusterWhoseEveryAddressChangedIsFound(t *testing.T) {
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	g.server.set("relay.example", 60, "10.0.0.1", "10.0.0.2")
	mustRefresh(t, f)
	g.server.set("relay.example", 60, "10.0.5.1", "10.0.5.2")
	mustRefresh(t, f)
	expect(t, f, "10.0.5.1:7400", "10.0.5.2:7400", "10.0.0.1:7400", "10.0.0.2:7400")
	mustRefresh(t, f)
	mustRefresh(t, f)
	expect(t, f, "10.0.5.1:7400", "10.0.5.2:7400")
}

func TestAnEmptyAnswerNeverEmptiesTheList(t *testing.T) {
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	g.server.set("relay.example", 60, "10.0.0.1")
	mustRefresh(t, f)
	g.server.set("relay.example", 60)
	for range 10 {
		if err := f.Refresh(t.Context()); err == nil {
			t.Error("no address, and no error")
		}
		expect(t, f, "10.0.0.1:7400")
	}
}

func TestTheCallersListIsItsOwn(t *testing.T) {
	f, err := New(Config{Seeds: []string{"10.0.0.1", "10.0.0.2"}})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(f.Addrs())
	expect(t, f, "10.0.0.1:7400", "10.0.0.2:7400")
}

func TestARefreshEndsWithItsContext(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.1")
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	mustRefresh(t, f)
	release := g.server.hold()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.Refresh(ctx) })
	procs.Await(t, "the refresh asks", func() bool { return g.server.holding() == 2 })
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := f.Refresh(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for another refresh: %v", err)
	}
	cancel()
	wg.Wait()
	release()
	expect(t, f, "10.0.0.1:7400")
	if s := f.statuses()[0]; s.Err != nil {
		t.Errorf("a caller that went away was taken for a failure: %v", s.Err)
	}
}

// The hosts file stands in for DNS here: real sockets do not run in a bubble.
func TestRunRefreshesImmediatelyAndEverySixtyToSixtyFiveSeconds(t *testing.T) { // HS-A17
	path := writeFile(t, "10.0.0.1 relay.example\n")
	synctest.Test(t, func(t *testing.T) {
		resolver, err := NewResolver(ResolverConfig{HostsFile: path, CacheTTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration // when each refresh published its one address
		f, err := New(Config{Seeds: []string{"relay.example"}, Resolver: resolver, Exclude: func(netip.AddrPort) bool {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return false
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.Run(ctx) })
		synctest.Wait()
		expect(t, f, "10.0.0.1:7400")
		if err := os.WriteFile(path, []byte("10.0.0.2 relay.example\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		expect(t, f, "10.0.0.2:7400")
		cancel()
		wg.Wait()
		// The old address is in three of the lists, next to the new one.
		at = slices.Compact(at)
		if len(at) < 3600/65 || len(at) > 3600/60+1 || at[0] != 0 {
			t.Fatalf("%d refreshes in an hour, the first at %v", len(at), at[0])
		}
		pauses := make(map[time.Duration]bool)
		for i := range at[1:] {
			pause := at[i+1] - at[i]
			if pause < 60*time.Second || pause > 65*time.Second {
				t.Errorf("refreshed after %v, want 60 to 65 s", pause)
			}
			pauses[pause] = true
		}
		if len(pauses) < 10 {
			t.Errorf("only %d different pauses: no jitter", len(pauses))
		}
	})
}

func TestANameIsAskedForAgainWhenItsAnswerNoLongerCounts(t *testing.T) {
	const soa = "example. 3600 IN SOA ns.example. admin.example. 1 2 3 4 "
	for name, c := range map[string]struct {
		setUp func(*server)
		seeds []string
		want  time.Duration
	}{
		"the TTL of the record":     {func(s *server) { s.set("a.example", 5, "10.0.0.1") }, []string{"a.example"}, 5 * time.Second},
		"of both families":          {func(s *server) { s.set("a.example", 9, "10.0.0.1", "2001:db8::1") }, []string{"a.example"}, 9 * time.Second},
		"a second for a TTL of 0":   {func(s *server) { s.set("a.example", 0, "10.0.0.1") }, []string{"a.example"}, time.Second},
		"the interval for a day":    {func(s *server) { s.set("a.example", 86400, "10.0.0.1") }, []string{"a.example"}, time.Minute},
		"the soonest of two names":  {func(s *server) { s.set("a.example", 20, "10.0.0.1"); s.set("b.example", 8, "10.0.0.2") }, []string{"a.example", "b.example"}, 8 * time.Second},
		"an address has no pause":   {func(*server) {}, []string{"10.0.0.1"}, time.Minute},
		"no such name, no SOA":      {func(*server) {}, []string{"a.example"}, 30 * time.Second},
		"no such name, SOA":         {func(s *server) { s.deny("a.example", soa+"7") }, []string{"a.example"}, 7 * time.Second},
		"SOA with a minimum of 0":   {func(s *server) { s.deny("a.example", soa+"0") }, []string{"a.example"}, time.Second},
		"SOA with a day":            {func(s *server) { s.deny("a.example", soa+"86400") }, []string{"a.example"}, 30 * time.Second},
		"SOA whose own TTL is less": {func(s *server) { s.deny("a.example", "example. 3 IN SOA ns.example. admin.example. 1 2 3 4 20") }, []string{"a.example"}, 3 * time.Second},
		"a name without an address": {func(s *server) {
			s.records("a.example", "TXT", `a.example. 60 IN TXT "x"`)
			s.deny("a.example", soa+"6")
		}, []string{"a.example"}, 6 * time.Second},
		"a server that fails": {func(s *server) { s.fail("a.example", dns.RcodeServerFailure) }, []string{"a.example"}, 30 * time.Second},
		"no such service":     {func(s *server) { s.deny(gossip, soa+"11") }, []string{"srv+" + gossip}, 11 * time.Second},
		"a service not offered": {func(s *server) {
			s.records(gossip, "SRV", gossip+". 12 IN SRV 0 0 0 .")
		}, []string{"srv+" + gossip}, 12 * time.Second},
		"the target of a service": {func(s *server) {
			s.set("a.example", 4, "10.0.0.1")
			s.records(gossip, "SRV", gossip+". 50 IN SRV 1 1 7401 a.example.")
		}, []string{"srv+" + gossip}, 4 * time.Second},
		"a target that fails": {func(s *server) {
			s.set("a.example", 40, "10.0.0.1")
			s.deny("b.example", soa+"13")
			s.records(gossip, "SRV", gossip+". 50 IN SRV 1 1 7401 a.example.", gossip+". 50 IN SRV 1 1 7401 b.example.")
		}, []string{"srv+" + gossip}, 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, nil)
			c.setUp(g.server)
			f := g.newFinder(t, Config{Seeds: c.seeds, RefreshJitter: -1})
			asked := func() int { return g.server.count("udp") }
			_ = f.Recheck(t.Context(), time.Hour)
			if got := f.Pause(); got != c.want {
				t.Errorf("due after %v, want %v", got, c.want)
			}
			first := asked()
			g.clock.pass(c.want - time.Millisecond)
			if _ = f.Recheck(t.Context(), time.Hour); asked() != first {
				t.Errorf("%d questions before the time, want %d", asked(), first)
			}
			g.clock.pass(time.Millisecond)
			if _ = f.Recheck(t.Context(), time.Hour); first > 0 && c.want < time.Minute && asked() == first {
				t.Error("not asked again when it was time")
			}
		})
	}
}

func TestTheJitterIsTheSamePartOfAShortPause(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("a.example", 6, "10.0.0.1")
	f := g.newFinder(t, Config{Seeds: []string{"a.example"}})
	mustRefresh(t, f)
	pauses := make(map[time.Duration]bool)
	for range 100 {
		d := f.Pause()
		if d < 6*time.Second || d >= 6500*time.Millisecond {
			t.Fatalf("%v, want 6 s and a twelfth of it at most", d)
		}
		pauses[d] = true
	}
	if len(pauses) < 10 {
		t.Errorf("only %d different pauses: no jitter", len(pauses))
	}
}

func TestRunFollowsAnAddressThatChangesWhenItsTTLHasPassed(t *testing.T) {
	server := startServer(t)
	resolver, err := NewResolver(ResolverConfig{Servers: []string{server.addr}, HostsFile: "none"})
	if err != nil {
		t.Fatal(err)
	}
	server.set("relay.example", 300, "10.0.0.1")
	f, err := New(Config{Seeds: []string{"relay.example"}, Resolver: resolver, RefreshInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { f.Run(ctx) })
	procs.Await(t, "the first address", func() bool { return len(f.Addrs()) == 1 })
	server.set("relay.example", 1, "10.0.0.2")
	mustRefresh(t, f) // another caller's answer counts for less than Run was going to wait
	server.set("relay.example", 1, "10.0.0.3")
	procs.Await(t, "the third address", func() bool { return slices.Contains(f.Addrs(), addrPorts("10.0.0.3:7400")[0]) })
}

func TestACallerThatReturnsOftenAsksAgainForOldAnswersOnly(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 300, "10.0.0.1")
	f := g.newFinder(t, Config{Seeds: []string{"relay.example", "absent.example"}})
	asked := func(want int, name string) {
		t.Helper()
		if err := f.Recheck(t.Context(), 10*time.Second); err == nil || strings.Contains(err.Error(), "cached failure") {
			t.Errorf("%v: the reason is to stay the same", err)
		}
		if n := g.server.count(name + " A"); n != want {
			t.Errorf("%s was asked for %d times, want %d", name, n, want)
		}
	}
	asked(1, "relay.example")
	g.clock.pass(10*time.Second - 1)
	asked(1, "relay.example")
	g.clock.pass(1)
	asked(2, "relay.example")
	asked(1, "absent.example")
	g.clock.pass(20*time.Second - 1)
	asked(1, "absent.example")
	g.clock.pass(1)
	asked(2, "absent.example")
}

func TestANameThatNoServerAnsweredIsAskedForAgain(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*server)
		again bool
	}{
		"silence":    {func(s *server) { s.hang("relay.example") }, true},
		"no server":  {func(s *server) { s.stop() }, true},
		"a no":       {func(*server) {}, false},
		"a breakage": {func(s *server) { s.fail("relay.example", dns.RcodeServerFailure) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, func(c *ResolverConfig) { c.Timeout = 50 * time.Millisecond })
			c.spoil(g.server)
			f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
			for range 2 {
				_ = f.Recheck(t.Context(), time.Hour)
			}
			if again := g.Stats().Misses == 2; again != c.again {
				t.Errorf("asked for again at once: %v, want %v", again, c.again)
			}
		})
	}
}

func TestAnAddressIsGivenAnewByTheAnswerThatHasItAgain(t *testing.T) {
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"relay.example", "10.0.0.9"}})
	one, two := addrPorts("10.0.0.1:7400")[0], addrPorts("10.0.0.2:7400")[0]
	g.server.set("relay.example", 60, "10.0.0.1", "10.0.0.2")
	mustRefresh(t, f)
	first := f.Given(one)
	if first == 0 || f.Given(addrPorts("10.0.0.9:7400")[0]) != 0 {
		t.Fatalf("given by answer %d", first)
	}
	g.server.set("relay.example", 60, "10.0.0.2", "10.0.0.1")
	mustRefresh(t, f)
	g.server.set("relay.example", 60, "10.0.0.2")
	mustRefresh(t, f)
	if got := f.Given(one); got != first {
		t.Errorf("answers that have it, and one that lacks it, count as news: %d, then %d", first, got)
	}
	g.server.set("relay.example", 60, "10.0.0.2", "10.0.0.1")
	mustRefresh(t, f)
	if got := f.Given(one); got == first {
		t.Error("its return is no news")
	}
	if f.Given(two) != first {
		t.Error("the other one, which never went, is news")
	}
}

func TestTheSeedsGaugeFollowsTheList(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.1", "10.0.0.2")
	f := g.newFinder(t, Config{Seeds: []string{"10.0.0.9", "relay.example"}, Registerer: reg, Exclude: func(a netip.AddrPort) bool { return a == addrPorts("10.0.0.2:7400")[0] }})
	if got := metricValue(t, reg, "ringway_discovery_seeds", ""); got != 1 {
		t.Errorf("before a refresh: %v", got)
	}
	mustRefresh(t, f)
	if got := metricValue(t, reg, "ringway_discovery_seeds", ""); got != 2 {
		t.Errorf("after it: %v", got)
	}
}
