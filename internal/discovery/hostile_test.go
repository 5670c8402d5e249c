package discovery

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// mostRecords is how many addresses an answer of the server has room for: 64 KiB.
const mostRecords = 1900

// thousands are addresses of 10.0.0.0/8, as many as fit into one answer. Two seeds give two sets.
func thousands(seed int) (all []string) {
	for n := range mostRecords {
		all = append(all, fmt.Sprintf("10.%d.%d.%d", seed, n/250, n%250+1))
	}
	return all
}

func TestThousandsOfAddressesOfANameAreNotAllTried(t *testing.T) {
	g := newRig(t, nil)
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	g.server.truncate(0)
	for round := range 6 { // each answer has other addresses
		g.server.set("relay.example", 1, thousands(round)...)
		mustRefresh(t, f)
		if got, most := len(f.Addrs()), 3*maxAddresses; got < maxAddresses || got > most {
			t.Fatalf("%d addresses are tried after answer %d, want %d to %d", got, round, maxAddresses, most)
		}
		if got := metricValue(t, g.metrics, "ringway_discovery_dropped_addresses_total", dropMany); got != float64((round+1)*(mostRecords-maxAddresses)) {
			t.Errorf("%v addresses are counted after answer %d", got, round)
		}
	}
	if n := g.log.Lines("is one more than"); n == 0 {
		t.Error("the log does not name the addresses that are too many")
	}
}

func TestAnAllowedAddressIsFoundBehindThousandsThatAreForbidden(t *testing.T) {
	g := newRig(t, func(c *ResolverConfig) { c.AllowedCIDRs = []string{"192.0.2.0/24"} })
	f := g.newFinder(t, Config{Seeds: []string{"relay.example"}})
	g.server.truncate(0)
	g.server.set("relay.example", 60, append(thousands(1), "192.0.2.7")...)
	mustRefresh(t, f)
	expect(t, f, "192.0.2.7:7400")
	if got := metricValue(t, g.metrics, "ringway_discovery_dropped_addresses_total", dropCIDR); got != mostRecords {
		t.Errorf("%v addresses are counted", got)
	}
}

func TestHostileRecordsOfANameEndInAnErrorOrAreIgnored(t *testing.T) {
	chain := func(n int) (lines []string) {
		for i := range n {
			owner := "relay.example"
			if i > 0 {
				owner = fmt.Sprintf("a%d.example", i)
			}
			lines = append(lines, fmt.Sprintf("%s. 60 IN CNAME a%d.example.", owner, i+1))
		}
		return append(lines, fmt.Sprintf("a%d.example. 60 IN A 10.0.0.1", n))
	}
	for name, c := range map[string]struct {
		lines []string
		want  []netip.Addr // nil: an error
	}{
		"an alias of itself":           {[]string{"relay.example. 60 IN CNAME relay.example."}, nil},
		"a loop of two aliases":        {[]string{"relay.example. 60 IN CNAME b.example.", "b.example. 60 IN CNAME relay.example."}, nil},
		"a chain of aliases":           {chain(8), addrs("10.0.0.1")},
		"a chain of 500 aliases":       {chain(500), nil},
		"an address of another name":   {[]string{"other.example. 60 IN A 10.6.6.6"}, nil},
		"one of another name as well":  {[]string{"other.example. 60 IN A 10.6.6.6", "relay.example. 60 IN A 10.0.0.1"}, addrs("10.0.0.1")},
		"no address of a host":         {[]string{"relay.example. 60 IN A 0.0.0.0", "relay.example. 60 IN A 224.0.0.1"}, nil},
		"the same address 1,000 times": {slices.Repeat([]string{"relay.example. 60 IN A 10.0.0.1"}, 1000), addrs("10.0.0.1")},
		"times to live that overflow":  {[]string{"relay.example. 4294967295 IN A 10.0.0.1"}, addrs("10.0.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, nil)
			g.server.records("relay.example", "A", c.lines...)
			g.server.truncate(0)
			begun := time.Now()
			res, err := g.LookupHost(t.Context(), "relay.example", UseCache)
			if took := time.Since(begun); took > g.cfg.Timeout {
				t.Errorf("took %v", took)
			}
			if (err == nil) != (c.want != nil) || !slices.Equal(res.Addrs, c.want) {
				t.Errorf("got %v, %v; want %v", res.Addrs, err, c.want)
			}
		})
	}
}

func TestAServiceOfThousandsOfTargetsCostsABoundedNumberOfQueriesAndAddresses(t *testing.T) {
	const targets, each = 900, 4
	g := newRig(t, nil)
	var lines []string
	for n := range targets {
		host := fmt.Sprintf("t%d.example", n)
		lines = append(lines, fmt.Sprintf("_gossip._udp.example. 60 IN SRV 1 1 7400 %s.", host))
		var own []string
		for i := range each {
			own = append(own, fmt.Sprintf("10.%d.%d.%d", i, n/250, n%250+1))
		}
		g.server.set(host, 60, own...)
	}
	g.server.records("_gossip._udp.example", "SRV", lines...)
	g.server.truncate(0)
	f := g.newFinder(t, Config{Seeds: []string{"srv+_gossip._udp.example"}})
	mustRefresh(t, f)
	if got := len(f.Addrs()); got != maxAddresses {
		t.Errorf("%d addresses are tried, want %d", got, maxAddresses)
	}
	if got, most := g.server.count("udp"), 1+2*maxTargets; got > most {
		t.Errorf("%d queries, want at most %d", got, most)
	}
	if got := metricValue(t, g.metrics, "ringway_discovery_dropped_addresses_total", dropMany); got != maxTargets*each-maxAddresses {
		t.Errorf("%v addresses are counted as too many", got)
	}
}

func TestBytesThatAreNoAnswerEndInAnError(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	random, done := rand.New(rand.NewPCG(1, 2)), make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 4096); ; {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			for i := 2; i < n; i++ { // the number of the question stays
				buf[i] = byte(random.Uint32())
			}
			_, _ = packets.WriteTo(buf[:n], from)
		}
	}()
	defer func() { _ = packets.Close(); <-done }()
	g := newRig(t, func(c *ResolverConfig) {
		c.Servers, c.Timeout = []string{packets.LocalAddr().String()}, 300*time.Millisecond
	})
	for range 50 {
		if res, err := g.LookupHost(t.Context(), "relay.example", SkipCache); err == nil || !strings.Contains(err.Error(), "relay.example") {
			t.Fatalf("%v, %v", res, err)
		}
	}
}
