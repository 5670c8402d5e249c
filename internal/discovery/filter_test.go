package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAddressesOutsideTheAllowedCIDRsAreNeverUsed(t *testing.T) { // HS-C8
	g := newRig(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"10.0.0.0/8", "2001:db8::/32"} })
	g.server.set("relay.example", 5, "10.0.0.1", "203.0.113.9", "2001:db8::1", "2001:db9::1")
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1", "2001:db8::1")) {
		t.Fatalf("got %v", res.Addrs)
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dropped_addresses_total", dropCIDR); got != 2 {
		t.Errorf("%v dropped, want 2", got)
	}
	g.host(t, "relay.example", SkipCache)
	if n := g.log.Lines("break a rule"); n != 1 {
		t.Errorf("the same drop was said %d times, want once", n)
	}

	g.server.set("outside.example", 5, "203.0.113.9", "203.0.113.10")
	_, err := g.LookupHost(t.Context(), "outside.example", UseCache)
	for _, want := range []string{"outside.example", "203.0.113.9", "203.0.113.10", "10.0.0.0/8"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestAPrivateAddressForAPublicNameIsDropped(t *testing.T) { // HS-C9
	for _, c := range []struct {
		name, addr string
		dropped    bool
	}{
		{"relay.example.com", "10.0.0.1", true},
		{"relay.example.com", "127.0.0.1", true},
		{"relay.example.com", "169.254.1.1", true},
		{"relay.example.com", "100.64.1.1", true},
		{"relay.example.com", "fd00::1", true},
		{"relay.example.com", "::1", true},
		{"relay.example.com", "203.0.113.1", false},
		{"relay.example.com", "2001:db8::1", false},
		{"relay.mylocal", "10.0.0.1", true},
		{"relay.local", "10.0.0.1", false},
		{"relay.internal", "10.0.0.1", false},
		{"relay.ns.svc", "10.0.0.1", false},
		{"relay.ns.svc.cluster.local", "10.0.0.1", false},
		{"relay.corp", "10.0.0.1", false},
		{"relay.home", "10.0.0.1", false},
		{"relay.lan", "10.0.0.1", false},
		{"relay.private", "10.0.0.1", false},
		{"relay.test", "10.0.0.1", false},
		{"relay", "10.0.0.1", false},
	} {
		g := newRig(t, func(r *ResolverConfig) { r.BlockPrivateForPublic = true })
		g.server.set(c.name, 60, c.addr)
		_, err := g.LookupHost(t.Context(), c.name, UseCache)
		if dropped := err != nil; dropped != c.dropped {
			t.Errorf("%s at %s: %v; want dropped %v", c.name, c.addr, err, c.dropped)
		}
	}
	g := newRig(t, nil)
	g.server.set("relay.example.com", 60, "10.0.0.1")
	g.host(t, "relay.example.com", UseCache) // off by default
}

func TestNoHostHasAnUnspecifiedAddress(t *testing.T) {
	g := newRig(t, nil)
	g.server.set("relay.example", 60, "0.0.0.0", "224.0.0.1", "255.255.255.255", "10.0.0.1", "::", "ff02::1")
	if res := g.host(t, "relay.example", UseCache); !slices.Equal(res.Addrs, addrs("10.0.0.1")) {
		t.Fatalf("got %v", res.Addrs)
	}
}

func TestOneAnswerWithManyRecordsIsNotFlux(t *testing.T) { // HS-C10, T-HS3
	g := newRig(t, func(c *ResolverConfig) { c.RejectFlux = true })
	var ten []string
	for i := range 10 {
		ten = append(ten, fmt.Sprintf("10.0.0.%d", i+1))
	}
	for range 20 {
		g.server.set("relay.example", 5, ten...)
		if res := g.host(t, "relay.example", SkipCache); res.Stale || len(res.Addrs) != 10 {
			t.Fatalf("got %+v", res)
		}
		ten = append(ten[1:], ten[0]) // another order is no change
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dns_answer_changes_total", ""); got != 0 {
		t.Errorf("%v changes counted, want none", got)
	}
}

func TestAnAnswerThatChangesTooOftenIsRefusedWhenAsked(t *testing.T) { // HS-C10
	g := newRig(t, func(c *ResolverConfig) { c.RejectFlux = true })
	flap := func(i int) Result {
		g.server.set("relay.example", 1, fmt.Sprintf("10.0.0.%d", i), "10.0.1.1")
		g.clock.pass(10 * time.Second)
		return g.host(t, "relay.example", SkipCache)
	}
	flap(0)
	for i := 1; i <= 5; i++ {
		if res := flap(i); res.Stale || res.Addrs[0] != addrs(fmt.Sprintf("10.0.0.%d", i))[0] {
			t.Fatalf("change %d was refused: %+v", i, res)
		}
	}
	for i := 6; i <= 9; i++ {
		res := flap(i)
		if !res.Stale || !strings.Contains(res.Reason.Error(), "changed more than 5 times") || res.Addrs[0] != addrs("10.0.0.5")[0] {
			t.Fatalf("change %d was taken: %+v", i, res)
		}
	}
	if n := g.log.Lines("change too often"); n != 1 {
		t.Errorf("said %d times, want once", n)
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dropped_addresses_total", dropFlux); got != 8 {
		t.Errorf("%v addresses counted, want 8", got)
	}
	g.clock.pass(5 * time.Minute)
	if res := g.host(t, "relay.example", SkipCache); res.Stale || res.Addrs[0] != addrs("10.0.0.9")[0] {
		t.Fatalf("calm for a whole window, and still refused: %+v", res)
	}
}
