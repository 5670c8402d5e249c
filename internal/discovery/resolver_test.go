package discovery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/ringway/ringway/internal/procs"
)

func TestBothAddressFamiliesAreFoundOnceEach(t *testing.T) { // HS-C1
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.2", "10.0.0.1", "2001:db8::1")
	g.server.records("relay.example", "A", "relay.example. 60 IN A 10.0.0.2", "relay.example. 60 IN A 10.0.0.1", "relay.example. 60 IN A 10.0.0.2")
	if res := g.host(t, "Relay.Example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.2", "10.0.0.1", "2001:db8::1")) || res.Stale {
		t.Fatalf("got %+v", res)
	}
}

func TestARecordCountsForItsTTL(t *testing.T) { // HS-A6
	for name, c := range map[string]struct {
		ttl      int
		fresh    time.Duration // still answered from the cache
		outdated time.Duration
	}{
		"5 s":              {5, 4999 * time.Millisecond, 5 * time.Second},
		"60 s":             {60, 59 * time.Second, time.Minute},
		"0 is one second":  {0, 999 * time.Millisecond, time.Second},
		"a day is 5 min":   {86400, 299 * time.Second, 5 * time.Minute},
		"top bit is one s": {1 << 31, 999 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, nil)
			g.server.set("relay.example", c.ttl, "10.0.0.1")
			g.host(t, "relay.example", UseCache)
			g.server.set("relay.example", c.ttl, "10.0.0.2")
			g.clock.pass(c.fresh)
			if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
				t.Fatalf("after %v: %v", c.fresh, res.Addrs)
			}
			g.clock.pass(c.outdated - c.fresh)
			if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.2")) {
				t.Fatalf("after %v: %v", c.outdated, res.Addrs)
			}
			if n := g.server.count("relay.example A"); n != 2 {
				t.Fatalf("%d queries, want 2", n)
			}
		})
	}
}

func TestTheLowestTTLOfAnAliasChainCounts(t *testing.T) {
	g := newRig(t, nil)
	g.server.records("relay.example", "A", "relay.example. 7 IN CNAME real.example.", "real.example. 300 IN A 10.0.0.1", "other.example. 1 IN A 10.9.9.9")
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
		t.Fatalf("got %v", res.Addrs)
	}
	g.clock.pass(6 * time.Second)
	g.host(t, "relay.example", UseCache)
	g.clock.pass(time.Second)
	g.host(t, "relay.example", UseCache)
	if n := g.server.count("relay.example A"); n != 2 {
		t.Fatalf("%d queries, want 2: one at the start and one after 7 s", n)
	}
}

func TestFailuresNameTheHostAndTheCause(t *testing.T) { // HS-C12
	g := newRig(t, func(c *ResolverConfig) { c.Timeout = 400 * time.Millisecond })
	g.server.fail("broken.example", dns.RcodeServerFailure)
	g.server.fail("refused.example", dns.RcodeRefused)
	g.server.records("empty.example", "TXT", `empty.example. 60 IN TXT "x"`)
	g.server.hang("silent.example")
	for name, want := range map[string]struct{ cause, result string }{
		"absent.example":  {"NXDOMAIN", resultError},
		"broken.example":  {"SERVFAIL", resultError},
		"refused.example": {"REFUSED", resultError},
		"empty.example":   {"has no address", resultError},
		"silent.example":  {"no answer within 400ms", resultTimeout},
	} {
		before := metricValue(t, g.metrics, "ringway_discovery_dns_lookups_total", want.result)
		_, err := g.LookupHost(t.Context(), name, UseCache)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want.cause) {
			t.Errorf("%s: got %v, want its name and %q", name, err, want.cause)
		}
		if got := metricValue(t, g.metrics, "ringway_discovery_dns_lookups_total", want.result); got != before+1 {
			t.Errorf("%s: counted %v times as %s", name, got-before, want.result)
		}
	}
	for _, name := range []string{"", "a..b", strings.Repeat("x", 70), "10.0.0.1"} {
		if _, err := g.LookupHost(t.Context(), name, UseCache); err == nil {
			t.Errorf("%q was looked up", name)
		}
	}
}

func TestAFailureIsRememberedForAFixedTime(t *testing.T) { // HS-A7
	g := newRig(t, nil)
	for round := 1; round <= 4; round++ { // it does not grow
		if _, err := g.LookupHost(t.Context(), "absent.example", UseCache); err == nil || strings.Contains(err.Error(), "cached failure") {
			t.Fatalf("round %d: %v", round, err)
		}
		g.clock.pass(30*time.Second - 1)
		if _, err := g.LookupHost(t.Context(), "absent.example", UseCache); err == nil || !strings.Contains(err.Error(), "cached failure") || !strings.Contains(err.Error(), "NXDOMAIN") {
			t.Fatalf("round %d: %v", round, err)
		}
		g.clock.pass(1)
		if n := g.server.count("absent.example A"); n != round {
			t.Fatalf("round %d: %d queries", round, n)
		}
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dns_lookups_total", resultNegative); got != 4 {
		t.Errorf("%v remembered failures counted, want 4", got)
	}
	g.server.set("absent.example", 60, "10.0.0.1")
	g.host(t, "absent.example", UseCache)
	g.host(t, "absent.example", UseCache)
}

func TestFiftyCallersMakeOneQuery(t *testing.T) { // HS-C5
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.1")
	release := g.server.hold()
	defer release()
	var wg sync.WaitGroup
	results := make([]Result, 50)
	for i := range results {
		wg.Go(func() { results[i], _ = g.LookupHost(t.Context(), "relay.example", UseCache) })
	}
	procs.Await(t, "49 callers wait for the first", func() bool { return g.Stats().Shared == 49 })
	if p := g.Stats().Pending; p != 1 {
		t.Errorf("%d pending, want 1", p)
	}
	release()
	wg.Wait()
	for i, res := range results {
		if !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
			t.Fatalf("caller %d got %+v", i, res)
		}
	}
	if a, aaaa := g.server.count("relay.example A"), g.server.count("relay.example AAAA"); a != 1 || aaaa != 1 {
		t.Fatalf("%d A and %d AAAA queries, want one each", a, aaaa)
	}
}

func TestACallerThatLeavesDoesNotSpoilTheQueryForTheOthers(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.1")
	release := g.server.hold()
	defer release()
	first, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var firstErr, secondErr error
	var second Result
	wg.Go(func() { _, firstErr = g.LookupHost(first, "relay.example", UseCache) })
	procs.Await(t, "the first query is on the wire", func() bool { return g.server.holding() == 2 })
	wg.Go(func() { second, secondErr = g.LookupHost(t.Context(), "relay.example", UseCache) })
	procs.Await(t, "the second caller waits", func() bool { return g.Stats().Shared == 1 })
	leave()
	procs.Await(t, "the second caller asks for itself", func() bool { return g.server.holding() == 4 })
	release()
	wg.Wait()
	if !errors.Is(firstErr, context.Canceled) {
		t.Errorf("the first caller got %v", firstErr)
	}
	if secondErr != nil || !slices.Equal(second.Addrs, addrs("10.0.0.1")) {
		t.Errorf("the second caller got %v, %v", second, secondErr)
	}
	if n := g.Stats().Negative; n != 0 {
		t.Errorf("leaving was remembered as a failure of the name")
	}
}

func TestAWaitingCallerMayLeave(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.1")
	release := g.server.hold()
	defer release()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = g.LookupHost(t.Context(), "relay.example", UseCache) })
	procs.Await(t, "the query is on the wire", func() bool { return g.server.holding() == 2 })
	waiting, leave := context.WithCancel(t.Context())
	leave()
	if _, err := g.LookupHost(waiting, "relay.example", UseCache); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	release()
	wg.Wait()
}

func TestATruncatedAnswerIsFetchedOverTCP(t *testing.T) {
	g := newRig(t, nil)
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("10.0.%d.%d", i/100, i%100+1))
	}
	g.server.set("relay.example", 60, many...)
	g.server.truncate(0)
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs(many...)) {
		t.Fatalf("%d addresses, want 200", len(res.Addrs))
	}
	if n := g.server.count("tcp"); n != 2 {
		t.Errorf("%d queries over TCP, want 2", n)
	}
}

func TestATruncatedAnswerIsUsedWhenNoServerGivesAWholeOne(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "10.0.0.1", "10.0.0.2")
	g.server.truncate(1)
	g.server.stopTCP()
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
		t.Errorf("got %v, want the address in the truncated answer", res.Addrs)
	}
	whole := startServer(t)
	whole.set("relay.example", 60, "10.0.0.1", "10.0.0.2")
	second := newRig(t, func(c *ResolverConfig) { c.Servers = []string{g.server.addr, whole.addr} })
	if res := second.host(t, "relay.example", UseCache); len(res.Addrs) != 2 {
		t.Errorf("got %v, want both addresses of the second server", res.Addrs)
	}
}

func TestAServerWithoutEDNSIsAskedAgainWithout(t *testing.T) {
	refusing := func(rcode int) func(dns.ResponseWriter, *dns.Msg) {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			// Old servers answer with a header only.
			_ = w.WriteMsg(&dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true, Rcode: rcode}})
		}
	}
	for name, answer := range map[string]func(dns.ResponseWriter, *dns.Msg){
		"FORMERR": refusing(dns.RcodeFormatError),
		"NOTIMP":  refusing(dns.RcodeNotImplemented),
		"silence": func(dns.ResponseWriter, *dns.Msg) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, func(c *ResolverConfig) { c.Timeout = time.Second })
			g.server.set("relay.example", 60, "10.0.0.1", "fd00::1")
			g.server.withoutEDNS(answer)
			if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1", "fd00::1")) {
				t.Errorf("got %v", res.Addrs)
			}
		})
	}
}

func TestTheNextServerIsAskedWhenOneFails(t *testing.T) {
	for name, spoil := range map[string]func(*server){
		"dead":    func(s *server) { s.stop() },
		"silent":  func(s *server) { s.hang("relay.example") },
		"failing": func(s *server) { s.fail("relay.example", dns.RcodeServerFailure) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := startServer(t)
			spoil(bad)
			g := newRig(t, func(c *ResolverConfig) {
				c.Servers = append([]string{bad.addr}, c.Servers...)
				c.Timeout = 500 * time.Millisecond
			})
			g.server.set("relay.example", 60, "10.0.0.1")
			g.host(t, "relay.example", UseCache)
		})
	}
	t.Run("a no is believed", func(t *testing.T) {
		no := startServer(t)
		g := newRig(t, func(c *ResolverConfig) { c.Servers = append([]string{no.addr}, c.Servers...) })
		g.server.set("relay.example", 60, "10.0.0.1")
		if _, err := g.LookupHost(t.Context(), "relay.example", UseCache); err == nil {
			t.Fatal("the second server was asked")
		}
	})
	t.Run("all fail", func(t *testing.T) {
		one, two := startServer(t), startServer(t)
		one.fail("relay.example", dns.RcodeServerFailure)
		two.hang("relay.example")
		g := newRig(t, func(c *ResolverConfig) { c.Servers, c.Timeout = []string{one.addr, two.addr}, 50*time.Millisecond })
		_, err := g.LookupHost(t.Context(), "relay.example", UseCache)
		if err == nil || !strings.Contains(err.Error(), one.addr) || !strings.Contains(err.Error(), two.addr) {
			t.Fatalf("got %v, want both servers named", err)
		}
	})
}

func TestTheLastAnswerStaysInUseWhenDNSDies(t *testing.T) { // HS-C6
	g := newRig(t, func(c *ResolverConfig) { c.Timeout = 500 * time.Millisecond })
	g.server.set("relay.example", 5, "10.0.0.1")
	g.host(t, "relay.example", UseCache)
	g.server.stop()
	g.clock.pass(5 * time.Second)
	for range 3 {
		res := g.host(t, "relay.example", UseCache)
		if !res.Stale || res.Reason == nil || !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
			t.Fatalf("got %+v", res)
		}
		g.clock.pass(time.Hour)
	}
	g.host(t, "relay.example", UseCache) // asks
	g.host(t, "relay.example", UseCache) // remembers that it failed
	if n := g.log.Lines("last answer stays in use"); n != 1 {
		t.Errorf("said %d times, want once", n)
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dns_cache_hits_total", hitStale); got != 5 || g.Stats().Stale != 5 {
		t.Errorf("counted %v stale answers, %d in the statistics, want 5", got, g.Stats().Stale)
	}
	g.Invalidate("relay.example")
	if _, err := g.LookupHost(t.Context(), "relay.example", UseCache); err == nil {
		t.Error("the stale answer outlived Invalidate")
	}
}

func TestAnyFailureServesTheLastAnswerUntilTheNameResolvesAgain(t *testing.T) {
	for _, code := range []int{dns.RcodeNameError, dns.RcodeServerFailure, dns.RcodeRefused} {
		t.Run(dns.RcodeToString[code], func(t *testing.T) {
			g := newRig(t, nil)
			g.server.set("relay.example", 5, "10.0.0.1")
			g.host(t, "relay.example", UseCache)
			g.server.fail("relay.example", code)
			g.clock.pass(10 * time.Second)
			if res := g.host(t, "relay.example", UseCache); !res.Stale || !strings.Contains(res.Reason.Error(), dns.RcodeToString[code]) {
				t.Fatalf("got %+v", res)
			}
			g.server.set("relay.example", 5, "10.0.0.2")
			g.clock.pass(30 * time.Second)
			if res := g.host(t, "relay.example", UseCache); res.Stale || !slices.Equal(res.Addrs, addrs("10.0.0.2")) {
				t.Fatalf("got %+v", res)
			}
			if n := g.log.Lines("resolves again"); n != 1 {
				t.Errorf("the recovery was said %d times", n)
			}
		})
	}
}

func TestAForcedLookupSkipsAnswersAndFailures(t *testing.T) { // HS-C7
	g := newRig(t, nil)
	if _, err := g.LookupHost(t.Context(), "relay.example", UseCache); err == nil {
		t.Fatal("an unknown name resolved")
	}
	g.server.set("relay.example", 300, "10.0.0.1")
	if res := g.host(t, "relay.example", SkipCache); !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
		t.Fatalf("past the failure: %+v", res)
	}
	g.host(t, "relay.example", UseCache) // the failure is forgotten
	g.server.set("relay.example", 300, "10.0.0.2")
	if res := g.host(t, "relay.example", SkipCache); !slices.Equal(res.Addrs, addrs("10.0.0.2")) {
		t.Fatalf("past the answer: %+v", res)
	}
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.2")) {
		t.Fatalf("the new answer was not kept: %+v", res)
	}
}

func TestInvalidateForgetsAName(t *testing.T) { // HS-C11
	g := newRig(t, nil)
	g.server.set("relay.example", 300, "10.0.0.1")
	g.host(t, "relay.example", UseCache)
	g.server.set("relay.example", 300, "10.0.0.2")
	g.Invalidate("RELAY.example")
	g.Invalidate("no..name")
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.2")) {
		t.Fatalf("got %v", res.Addrs)
	}
}

func TestTheStatisticsCountWhatTheCacheDid(t *testing.T) { // HS-C11
	g := newRig(t, nil)
	g.server.set("relay.example", 5, "10.0.0.1")
	g.host(t, "relay.example", UseCache)
	g.host(t, "relay.example", UseCache)
	_, _ = g.LookupHost(t.Context(), "absent.example", UseCache)
	_, _ = g.LookupHost(t.Context(), "absent.example", UseCache)
	want := CacheStats{Positive: 1, Negative: 1, Hits: 1, NegativeHits: 1, Misses: 2}
	if got := g.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	g.clock.pass(time.Minute)
	if got := g.Stats(); got.Positive != 0 || got.Negative != 0 {
		t.Errorf("what no longer counts is counted: %+v", got)
	}
	for label, want := range map[string]float64{hitPositive: 1, hitNegative: 1, hitStale: 0} {
		if got := metricValue(t, g.metrics, "ringway_discovery_dns_cache_hits_total", label); got != want {
			t.Errorf("%s: %v, want %v", label, got, want)
		}
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dns_resolution_duration_seconds", ""); got != 2 {
		t.Errorf("%v durations, want 2", got)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	g := newRig(t, nil)
	g.mu.Lock()
	for i := range 2 * maxEntries {
		g.clock.pass(time.Millisecond)
		g.entryOf(question{name: fmt.Sprintf("host-%d", i)})
	}
	n, newest := len(g.entries), g.entries[question{name: fmt.Sprintf("host-%d", 2*maxEntries-1)}]
	g.clock.pass(maxIdle + time.Second)
	g.entryOf(question{name: "later"})
	idle := len(g.entries)
	g.mu.Unlock()
	if n != maxEntries || newest == nil {
		t.Errorf("%d entries, want the newest %d", n, maxEntries)
	}
	if idle != 1 {
		t.Errorf("%d entries after a day without a question, want 1", idle)
	}
}

func TestOneFamilyIsEnoughWhenTheOtherFails(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 300, "10.0.0.1")
	g.server.fail("relay.example AAAA", dns.RcodeServerFailure)
	res := g.host(t, "relay.example", UseCache)
	if !slices.Equal(res.Addrs, addrs("10.0.0.1")) || res.Stale || res.failed != familyV6 {
		t.Fatalf("got %+v", res)
	}
	g.clock.pass(30 * time.Second) // half an answer counts no longer than a failure
	g.server.set("relay.example", 300, "10.0.0.1", "2001:db8::1")
	g.server.fail("relay.example AAAA", dns.RcodeSuccess)
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1", "2001:db8::1")) || res.failed != 0 {
		t.Fatalf("got %+v", res)
	}
}

func TestTheHostsFileComesBeforeDNS(t *testing.T) {
	path := writeFile(t, "# comment\n10.1.0.1 relay.example Other # relay-2\n::5 RELAY.example.\nbad relay.example\n10.1.0.2\n")
	g := newRig(t, func(c *ResolverConfig) { c.HostsFile = path })
	g.server.set("relay.example", 60, "10.0.0.1")
	if res := g.host(t, "relay.example.", UseCache); !slices.Equal(res.Addrs, addrs("10.1.0.1", "::5")) {
		t.Errorf("got %v", res.Addrs)
	}
	if res := g.host(t, "other", UseCache); !slices.Equal(res.Addrs, addrs("10.1.0.1")) {
		t.Errorf("got %v", res.Addrs)
	}
	if _, err := g.LookupHost(t.Context(), "relay-2", UseCache); err == nil {
		t.Error("a comment was read")
	}
	if n := g.server.count("relay.example A"); n != 0 {
		t.Errorf("DNS was asked %d times", n)
	}
}

func TestLocalhostIsNeverAskedOfDNS(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("localhost", 60, "203.0.113.1")
	if res := g.host(t, "localhost", UseCache); !slices.Equal(res.Addrs, addrs("127.0.0.1", "::1")) {
		t.Fatalf("got %v", res.Addrs)
	}
}

func TestTheSearchListIsFollowed(t *testing.T) {
	conf := writeFile(t, "search ns.svc.cluster.local svc.cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n")
	g := newRig(t, func(c *ResolverConfig) { c.Servers, c.ResolvConf = nil, conf })
	_, g.port, _ = strings.Cut(g.server.addr, ":")
	g.server.set("relay.svc.cluster.local", 60, "10.0.0.1")
	g.server.fail("relay.ns.svc.cluster.local", dns.RcodeServerFailure)
	if res := g.host(t, "relay", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
		t.Errorf("got %v", res.Addrs)
	}
	if n := g.server.count("relay A"); n != 0 {
		t.Errorf("asked for more after the answer")
	}
	if _, err := g.LookupHost(t.Context(), "relay.", UseCache); err == nil {
		t.Error("a name with a trailing dot went through the search list")
	}
	g.server.fail("gone.ns.svc.cluster.local", dns.RcodeServerFailure)
	if _, err := g.LookupHost(t.Context(), "gone", UseCache); err == nil || !strings.Contains(err.Error(), "SERVFAIL") {
		t.Errorf("a no hid the failure before it: %v", err)
	}
}

func TestQueriesOnTheWireAreBounded(t *testing.T) { // HS-A15, T-HS4
	g := newRig(t, func(c *ResolverConfig) { c.MaxQueries = 3 })
	release := g.server.hold()
	defer release()
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		name := fmt.Sprintf("relay-%d.example", i)
		g.server.set(name, 60, "10.0.0.1")
		wg.Go(func() { _, errs[i] = g.LookupHost(t.Context(), name, UseCache) })
	}
	procs.Await(t, "all slots are taken", func() bool { return g.server.holding() == 3 && g.Stats().Pending == 20 })
	release()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if p := g.server.peak(); p != 3 {
		t.Errorf("%d concurrent queries, want 3", p)
	}
}

func TestAMissingOrUnreadableHostsFile(t *testing.T) {
	g := newRig(t, func(c *ResolverConfig) { c.HostsFile = filepath.Dir(writeFile(t, "")) })
	g.server.set("relay.example", 60, "10.0.0.1")
	if _, err := g.LookupHost(t.Context(), "relay.example", UseCache); err == nil || !strings.Contains(err.Error(), "hosts file") {
		t.Fatalf("a directory as hosts file: %v", err)
	}
}
