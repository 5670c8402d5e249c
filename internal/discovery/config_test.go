package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestEverythingWrongWithAConfigurationIsReportedInOneError(t *testing.T) {
	_, err := NewResolver(ResolverConfig{
		Servers: []string{"dns.example", "127.0.0.1:0"}, AllowedCIDRs: []string{"10.0.0.0/8", "10.0.0.0/33", "relay"}, InternalSuffixes: []string{".a b"},
		Timeout: -1, CacheTTL: -1, MaxTTL: -1, NegativeTTL: -1, ChangeWindow: -1, MaxQueries: -1, MaxChanges: -1,
	})
	for _, want := range []string{
		`DNS server "dns.example"`, `DNS server "127.0.0.1:0"`, `Invalid CIDR "10.0.0.0/33"`, `Invalid CIDR "relay"`, `internal suffix ".a b"`,
		"query timeout -1ns", "cache TTL -1ns", "largest TTL -1ns", "negative TTL -1ns", "change window -1ns", "concurrent queries -1", "changes in a window -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("resolver: %q is not in %v", want, err)
		}
	}
	_, err = New(Config{Seeds: []string{"10.0.0.300", "a b"}, RefreshInterval: -1, DropAfter: -1})
	for _, want := range []string{`seed "10.0.0.300"`, `seed "a b"`, "refresh interval -1ns", "drop after -1 answers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("finder: %q is not in %v", want, err)
		}
	}
}

// covers fails for each field of a configuration without an entry in tests.
func covers(t *testing.T, config any, tests map[string]func(*testing.T)) {
	for _, field := range reflect.VisibleFields(reflect.TypeOf(config)) {
		if tests[field.Name] == nil {
			t.Errorf("no test shows that %s does anything", field.Name)
		}
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

func TestEveryResolverSettingChangesBehaviour(t *testing.T) {
	// twice asks two times, the given time apart, for a name whose address changes
	// in between, and reports whether the second answer was new.
	twice := func(t *testing.T, ttl int, apart time.Duration, change func(*ResolverConfig)) bool {
		g := newRig(t, change)
		g.server.set("relay.example", ttl, "10.0.0.1")
		g.host(t, "relay.example", UseCache)
		g.server.set("relay.example", ttl, "10.0.0.2")
		g.clock.pass(apart)
		return slices.Equal(g.host(t, "relay.example", UseCache).Addrs, addrs("10.0.0.2"))
	}
	// flap changes a name's address n times, apart, and returns the rig and the last
	// answer.
	flap := func(t *testing.T, n int, apart time.Duration, change func(*ResolverConfig)) (*rig, Result) {
		g := newRig(t, change)
		var res Result
		for i := range n + 1 {
			g.server.set("relay.example", 1, fmt.Sprintf("10.0.0.%d", i+1))
			res = g.host(t, "relay.example", SkipCache)
			g.clock.pass(apart)
		}
		return g, res
	}
	resolves := func(t *testing.T, name, addr string, change func(*ResolverConfig)) bool {
		g := newRig(t, change)
		g.server.set(name, 60, addr)
		_, err := g.LookupHost(t.Context(), name, UseCache)
		return err == nil
	}
	covers(t, ResolverConfig{}, map[string]func(*testing.T){
		"Servers": func(t *testing.T) {
			g := newRig(t, func(c *ResolverConfig) { c.Servers = []string{"127.0.0.78"}; c.Timeout = 50 * time.Millisecond })
			_, err := g.LookupHost(t.Context(), "relay.example", UseCache)
			if err == nil || !strings.Contains(err.Error(), "127.0.0.78:53") {
				t.Errorf("another server was asked: %v", err)
			}
		},
		"ResolvConf": func(t *testing.T) {
			for text, want := range map[string]string{"nameserver 127.0.0.77\n": "127.0.0.77:", "": "127.0.0.1:"} {
				g := newRig(t, func(c *ResolverConfig) {
					c.Servers, c.ResolvConf, c.Timeout = nil, writeFile(t, text), 50*time.Millisecond
				})
				g.port = g.server.addr[strings.LastIndex(g.server.addr, ":")+1:]
				_, err := g.LookupHost(t.Context(), "relay.example", UseCache)
				if err == nil || !strings.Contains(err.Error(), want+g.port) {
					t.Errorf("%q: %v", text, err)
				}
			}
			g := newRig(t, func(c *ResolverConfig) { c.Servers, c.ResolvConf = nil, "/does/not/exist" })
			g.port = g.server.addr[strings.LastIndex(g.server.addr, ":")+1:]
			g.server.set("relay.example", 60, "10.0.0.1")
			g.host(t, "relay.example", UseCache) // the local machine
		},
		"HostsFile": func(t *testing.T) {
			if !resolves(t, "other.example", "10.0.0.1", func(c *ResolverConfig) { c.HostsFile = writeFile(t, "10.0.0.9 relay.example\n") }) {
				t.Error("a name that is not in the file does not resolve")
			}
			g := newRig(t, func(c *ResolverConfig) { c.HostsFile = writeFile(t, "10.0.0.9 relay.example\n") })
			if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.9")) {
				t.Errorf("got %v", res.Addrs)
			}
		},
		"Timeout": func(t *testing.T) { // HS-A5
			g := newRig(t, func(c *ResolverConfig) { c.Timeout = 30 * time.Millisecond })
			g.server.hang("relay.example")
			if _, err := g.LookupHost(t.Context(), "relay.example", UseCache); err == nil || !strings.Contains(err.Error(), "within 30ms") {
				t.Errorf("got %v", err)
			}
		},
		"MaxQueries": func(t *testing.T) {
			g := newRig(t, func(c *ResolverConfig) { c.MaxQueries = 1 })
			g.server.set("relay.example", 60, "10.0.0.1", "2001:db8::1")
			g.host(t, "relay.example", UseCache)
			if p := g.server.peak(); p != 1 {
				t.Errorf("%d concurrent queries", p)
			}
		},
		"CacheTTL": func(t *testing.T) {
			read := func(change func(*ResolverConfig)) bool {
				path := writeFile(t, "10.0.0.9 relay.example\n")
				g := newRig(t, func(c *ResolverConfig) { c.HostsFile = path; change(c) })
				g.host(t, "relay.example", UseCache)
				g.clock.pass(20 * time.Second)
				hits := g.Stats().Hits
				g.host(t, "relay.example", UseCache)
				return g.Stats().Hits == hits
			}
			if read(func(*ResolverConfig) {}) || !read(func(c *ResolverConfig) { c.CacheTTL = 10 * time.Second }) {
				t.Error("an answer without a TTL does not count for CacheTTL")
			}
			if twice(t, 60, 59*time.Second, func(c *ResolverConfig) { c.CacheTTL = time.Second }) {
				t.Error("CacheTTL overrides the TTL of a record")
			}
		},
		"MaxTTL": func(t *testing.T) {
			if twice(t, 3600, time.Minute, nil) || !twice(t, 3600, time.Minute, func(c *ResolverConfig) { c.MaxTTL = time.Minute }) {
				t.Error("MaxTTL does not end a long TTL")
			}
		},
		"NegativeTTL": func(t *testing.T) {
			asked := func(change func(*ResolverConfig)) bool {
				g := newRig(t, change)
				_, _ = g.LookupHost(t.Context(), "relay.example", UseCache)
				g.clock.pass(10 * time.Second)
				_, _ = g.LookupHost(t.Context(), "relay.example", UseCache)
				return g.server.count("relay.example A") == 2
			}
			if asked(nil) || !asked(func(c *ResolverConfig) { c.NegativeTTL = 10 * time.Second }) {
				t.Error("NegativeTTL does not say how long a failure counts")
			}
		},
		"AllowedCIDRs": func(t *testing.T) {
			in := func(cidr string) func(*ResolverConfig) {
				return func(c *ResolverConfig) { c.AllowedCIDRs = []string{cidr} }
			}
			if !resolves(t, "relay.example", "10.0.0.1", in("10.0.0.0/8")) || resolves(t, "relay.example", "11.0.0.1", in("10.0.0.0/8")) || !resolves(t, "relay.example", "10.0.0.1", in("::ffff:10.0.0.0/104")) {
				t.Error("AllowedCIDRs does not say what may be used")
			}
		},
		"BlockPrivateForPublic": func(t *testing.T) {
			block := func(c *ResolverConfig) { c.BlockPrivateForPublic = true }
			if !resolves(t, "relay.example", "10.0.0.1", nil) || resolves(t, "relay.example", "10.0.0.1", block) {
				t.Error("BlockPrivateForPublic does not block")
			}
			hosts := func(c *ResolverConfig) { block(c); c.HostsFile = writeFile(t, "10.0.0.9 relay.example\n") }
			if !resolves(t, "relay.example", "203.0.113.1", hosts) {
				t.Error("the operator's own hosts file is not believed")
			}
		},
		"InternalSuffixes": func(t *testing.T) {
			own := func(c *ResolverConfig) {
				c.BlockPrivateForPublic = true
				c.InternalSuffixes = []string{"Mine.example."}
			}
			if !resolves(t, "relay.mine.example", "10.0.0.1", own) || resolves(t, "relay.local", "10.0.0.1", own) || resolves(t, "notmine.example", "10.0.0.1", own) {
				t.Error("InternalSuffixes does not say which names are not public")
			}
		},
		"ReportOnly": func(t *testing.T) {
			g := newRig(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"10.0.0.0/8"}; c.ReportOnly = true })
			g.server.set("relay.example", 60, "203.0.113.1")
			if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("203.0.113.1")) {
				t.Errorf("got %v", res.Addrs)
			}
			if g.log.Lines("break a rule") != 1 || metricValue(t, g.metrics, "ringway_discovery_dropped_addresses_total", dropCIDR) != 1 {
				t.Error("it was not reported")
			}
		},
		"IgnoreChanges": func(t *testing.T) {
			g, res := flap(t, 10, time.Second, func(c *ResolverConfig) { c.IgnoreChanges, c.RejectFlux = true, true })
			if res.Stale || g.log.Lines("change too often") != 0 {
				t.Error("changes were counted")
			}
		},
		"MaxChanges": func(t *testing.T) {
			reject := func(most int) bool {
				_, res := flap(t, 3, time.Second, func(c *ResolverConfig) { c.MaxChanges, c.RejectFlux = most, true })
				return res.Stale
			}
			if !reject(2) || reject(3) {
				t.Error("MaxChanges is not the most that is allowed")
			}
		},
		"ChangeWindow": func(t *testing.T) {
			reject := func(window time.Duration) bool {
				_, res := flap(t, 8, time.Minute, func(c *ResolverConfig) { c.ChangeWindow, c.RejectFlux = window, true })
				return res.Stale
			}
			if reject(0) || !reject(time.Hour) {
				t.Error("ChangeWindow does not say over what time changes count")
			}
		},
		"RejectFlux": func(t *testing.T) {
			g, res := flap(t, 8, time.Second, nil)
			if res.Stale || g.log.Lines("change too often") != 1 || metricValue(t, g.metrics, "ringway_discovery_dns_answer_changes_total", "") != 8 {
				t.Error("by default changes are not just noted")
			}
			if _, res := flap(t, 8, time.Second, func(c *ResolverConfig) { c.RejectFlux = true }); !res.Stale {
				t.Error("RejectFlux does not refuse")
			}
		},
		"Now": func(t *testing.T) {
			if !twice(t, 60, time.Minute, nil) || twice(t, 60, time.Minute, func(c *ResolverConfig) { c.Now = newClock().Now }) {
				t.Error("the cache has another clock")
			}
		},
		"Rand": func(t *testing.T) {
			first := func(x float64) uint16 {
				g := newRig(t, func(c *ResolverConfig) { c.Rand = func() float64 { return x } })
				g.server.records(gossip, "SRV", gossip+". 60 IN SRV 1 50 1 a.example.", gossip+". 60 IN SRV 1 50 2 a.example.")
				g.server.set("a.example", 60, "10.0.0.1")
				return g.service(t, UseCache).Targets[0].Port
			}
			if first(0.2) != 1 || first(0.8) != 2 {
				t.Error("Rand does not decide the order")
			}
		},
		"Logger": func(t *testing.T) {
			g, _ := flap(t, 8, time.Second, nil)
			if g.log.Lines("relay.example") == 0 {
				t.Error("nothing was logged")
			}
		},
		"Registerer": func(t *testing.T) {
			g := newRig(t, nil)
			g.server.set("relay.example", 60, "10.0.0.1")
			g.host(t, "relay.example", UseCache)
			if got := metricValue(t, g.metrics, "ringway_discovery_dns_lookups_total", resultSuccess); got != 1 {
				t.Errorf("%v lookups counted", got)
			}
		},
	})
}

func TestEverySettingOfTheFinderChangesBehaviour(t *testing.T) {
	// pause is the time between two refreshes of Run.
	pause := func(t *testing.T, cfg Config) (d time.Duration) {
		path := writeFile(t, "10.0.0.1 relay.example\n")
		synctest.Test(t, func(t *testing.T) {
			resolver, err := NewResolver(ResolverConfig{HostsFile: path, CacheTTL: 100 * time.Hour, MaxTTL: 100 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			cfg.Seeds, cfg.Resolver = []string{"relay.example"}, resolver
			f, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { f.Run(ctx) })
			synctest.Wait()
			began := time.Now()
			for ; resolver.Stats().Hits == 0 && time.Since(began) < 24*time.Hour; synctest.Wait() {
				time.Sleep(100 * time.Millisecond)
			}
			d = time.Since(began)
			cancel()
			wg.Wait()
		})
		return d
	}
	covers(t, Config{}, map[string]func(*testing.T){
		"Seeds": func(t *testing.T) { // HS-A3
			if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "no seeds") {
				t.Errorf("without seeds: %v", err)
			}
			f, err := New(Config{Seeds: []string{"10.0.0.1"}})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, f, "10.0.0.1:7400")
		},
		"AllowNoSeeds": func(t *testing.T) { // HS-A3
			f, err := New(Config{AllowNoSeeds: true})
			if err != nil {
				t.Fatal(err)
			}
			mustRefresh(t, f)
			expect(t, f)
		},
		"DefaultPort": func(t *testing.T) { // HS-A4
			g := newRig(t, nil)
			g.server.set("relay.example", 60, "10.0.0.1")
			f := g.newFinder(t, Config{Seeds: []string{"relay.example", "10.0.0.2", "10.0.0.3:1"}, DefaultPort: 9000})
			mustRefresh(t, f)
			expect(t, f, "10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:1")
		},
		"Resolver": func(t *testing.T) {
			g := newRig(t, nil)
			g.server.set("relay.example", 60, "10.0.0.1")
			f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
			mustRefresh(t, f)
			if f.Resolver() != g.Resolver || g.server.count("relay.example A") != 1 {
				t.Error("another resolver was asked")
			}
		},
		"RefreshInterval": func(t *testing.T) {
			if d := pause(t, Config{RefreshInterval: time.Hour}); d < time.Hour || d > time.Hour+6*time.Second {
				t.Errorf("refreshed after %v", d)
			}
		},
		"RefreshJitter": func(t *testing.T) {
			if d := pause(t, Config{RefreshJitter: -1}); d < time.Minute || d > time.Minute+200*time.Millisecond {
				t.Errorf("without jitter: %v", d)
			}
			if d := pause(t, Config{RefreshJitter: 20 * time.Hour}); d < 66*time.Second {
				t.Errorf("with up to 20 hours: %v", d)
			}
		},
		"DropAfter": func(t *testing.T) {
			g := newRig(t, nil)
			f := g.newFinder(t, Config{Seeds: []string{"relay.example"}, DropAfter: 1})
			g.server.set("relay.example", 60, "10.0.0.1")
			mustRefresh(t, f)
			g.server.set("relay.example", 60, "10.0.0.2")
			mustRefresh(t, f)
			expect(t, f, "10.0.0.2:7400")
		},
		"Exclude": func(t *testing.T) {
			f, err := New(Config{Seeds: []string{"10.0.0.1", "10.0.0.2"}, Exclude: func(a netip.AddrPort) bool { return a == addrPorts("10.0.0.1:7400")[0] }})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, f, "10.0.0.2:7400")
		},
		"Logger": func(t *testing.T) {
			g := newRig(t, nil)
			f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
			_ = f.Refresh(t.Context())
			if g.log.Lines("a seed does not resolve") != 1 {
				t.Error("nothing was logged")
			}
		},
		"Registerer": func(t *testing.T) {
			reg := prometheus.NewRegistry()
			if _, err := New(Config{Seeds: []string{"10.0.0.1"}, Registerer: reg}); err != nil {
				t.Fatal(err)
			}
			if metricValue(t, reg, "ringway_discovery_seeds", "") != 1 || metricValue(t, reg, "ringway_discovery_dns_lookups_total", resultSuccess) != 0 {
				t.Error("the gauge, or the metrics of its own resolver, are missing")
			}
		},
	})
}
