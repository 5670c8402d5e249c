package discovery

import (
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const gossip = "_gossip._udp.relay.example"

// ports lists the ports of the targets in order.
func ports(res serviceResult) (out []uint16) {
	for _, target := range res.Targets {
		out = append(out, target.Port)
	}
	return out
}

func (g *rig) service(t *testing.T, mode Mode) serviceResult {
	t.Helper()
	res, err := g.lookupService(t.Context(), gossip, mode)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestEveryServiceTargetHasItsOwnPort(t *testing.T) { // HS-C2
	g := newRig(t, nil)
	g.server.records(gossip, "SRV",
		gossip+". 60 IN SRV 20 5 7402 b.example.",
		gossip+". 60 IN SRV 10 5 7401 A.example.",
		gossip+". 60 IN SRV 30 5 7403 a.example.")
	g.server.set("a.example", 60, "10.0.0.1")
	g.server.set("b.example", 60, "10.0.0.2", "2001:db8::2")
	res := g.service(t, UseCache)
	if !slices.Equal(ports(res), []uint16{7401, 7402, 7403}) || res.Reason != nil || res.Stale {
		t.Fatalf("got %+v", res)
	}
	if b := res.Targets[1]; b.Host != "b.example" || !slices.Equal(b.Addrs, addrs("10.0.0.2", "2001:db8::2")) || b.Priority != 20 || b.Weight != 5 {
		t.Errorf("got %+v", b)
	}
	if n := g.server.count("a.example A"); n != 1 {
		t.Errorf("%d queries for a host with two ports, want 1", n)
	}
}

func TestTheAdditionalSectionSparesQueries(t *testing.T) {
	g := newRig(t, nil)
	g.server.records(gossip, "SRV", gossip+". 60 IN SRV 1 1 7401 a.example.", gossip+". 60 IN SRV 2 1 7402 b.example.")
	g.server.additional(gossip, "SRV", "a.example. 60 IN A 10.0.0.1", "stranger.example. 60 IN A 10.9.9.9")
	g.server.set("b.example", 60, "10.0.0.2")
	for range 2 { // forced: what came along is as new as it gets
		res := g.service(t, SkipCache)
		if len(res.Targets) != 2 || !slices.Equal(res.Targets[0].Addrs, addrs("10.0.0.1")) {
			t.Fatalf("got %+v", res)
		}
	}
	if a, b := g.server.count("a.example A"), g.server.count("b.example A"); a != 0 || b != 2 {
		t.Errorf("%d and %d queries, want 0 for what came along and 2 for the other", a, b)
	}
	if _, err := g.LookupHost(t.Context(), "stranger.example", UseCache); err == nil {
		t.Error("an unrequested address was believed")
	}
}

func TestABadTargetDoesNotSinkTheOthers(t *testing.T) { // HS-C3
	g := newRig(t, nil)
	g.server.records(gossip, "SRV", gossip+". 60 IN SRV 1 1 7401 absent.example.", gossip+". 60 IN SRV 2 1 7402 b.example.", gossip+`. 60 IN SRV 3 1 7403 b\032ad.example.`)
	g.server.set("b.example", 60, "10.0.0.2")
	res := g.service(t, UseCache)
	if !slices.Equal(ports(res), []uint16{7402}) || res.Reason == nil || !strings.Contains(res.Reason.Error(), "absent.example") {
		t.Fatalf("got %+v", res)
	}
}

func TestAServiceFailsWhenNoTargetResolves(t *testing.T) { // HS-C3, HS-C12
	g := newRig(t, nil)
	for name, c := range map[string]struct{ record, want string }{
		"no target resolves":  {gossip + ". 60 IN SRV 1 1 7401 absent.example.", "none of its targets resolves"},
		"not offered":         {gossip + ". 60 IN SRV 0 0 0 .", "not offered"},
		"port 0":              {gossip + ". 60 IN SRV 0 0 0 a.example.", "no usable SRV record"},
		"no record":           {"", "SRV query failed"},
		"record of a strange": {"other.example. 60 IN SRV 1 1 7401 a.example.", "no usable SRV record"},
	} {
		g.Invalidate(gossip)
		g.server.records(gossip, "SRV")
		if c.record != "" {
			g.server.records(gossip, "SRV", c.record)
		}
		if _, err := g.lookupService(t.Context(), gossip, UseCache); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), gossip) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := g.lookupService(t.Context(), "relay.example", UseCache); err == nil {
		t.Error("a host name was looked up as a service")
	}
}

func TestAServiceIsServedStaleWhenDNSDies(t *testing.T) {
	g := newRig(t, func(c *ResolverConfig) { c.Timeout = 500 * time.Millisecond })
	g.server.records(gossip, "SRV", gossip+". 5 IN SRV 1 1 7401 a.example.")
	g.server.set("a.example", 5, "10.0.0.1")
	g.service(t, UseCache)
	g.server.stop()
	g.clock.pass(time.Minute)
	for _, mode := range []Mode{UseCache, SkipCache} {
		res := g.service(t, mode)
		if !res.Stale || res.Reason == nil || !slices.Equal(ports(res), []uint16{7401}) || !slices.Equal(res.Targets[0].Addrs, addrs("10.0.0.1")) {
			t.Fatalf("got %+v", res)
		}
	}
}

func TestWithinAPriorityTheFirstPlaceFollowsTheWeight(t *testing.T) { // HS-C2
	g := newRig(t, nil)
	records := []record{
		{host: "low.", port: 9, priority: 2, weight: 60000},
		{host: "a.", port: 1, priority: 1, weight: 10},
		{host: "b.", port: 2, priority: 1, weight: 30},
		{host: "c.", port: 3, priority: 1, weight: 60},
		{host: "z.", port: 4, priority: 1, weight: 0},
	}
	const rounds = 20000
	first := map[uint16]float64{}
	for range rounds {
		order := g.shuffle(records)
		if order[4].port != 9 {
			t.Fatalf("a higher priority came first: %+v", order)
		}
		first[order[0].port]++
	}
	for port, want := range map[uint16]float64{1: 0.1, 2: 0.3, 3: 0.6, 4: 0} {
		if got := first[port] / rounds; math.Abs(got-want) > 0.02 {
			t.Errorf("port %d was first in %.3f of the rounds, want %.2f", port, got, want)
		}
	}
	if records[0].port != 9 {
		t.Error("the cached records were reordered")
	}
}

// What a server sends is read without believing anything in it.
func FuzzAnswer(f *testing.F) {
	seed := new(dns.Msg).SetQuestion(gossip+".", dns.TypeSRV)
	seed.Response = true
	seed.Answer = parseRecords([]string{gossip + ". 60 IN SRV 1 1 7401 a.example.", gossip + ". 60 IN CNAME " + gossip + "."})
	seed.Extra = parseRecords([]string{"a.example. 60 IN A 10.0.0.1", "a.example. 60 IN AAAA ::1", "a.example. 60 IN CNAME b.example."})
	packed, err := seed.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed, "a.example.")
	f.Fuzz(func(t *testing.T, packet []byte, name string) {
		msg := new(dns.Msg)
		if msg.Unpack(packet) != nil {
			return
		}
		for _, section := range [][]dns.RR{msg.Answer, msg.Extra} {
			found, ttl := addresses(section, name)
			for _, ip := range found {
				if !ip.IsValid() || ip.Is4In6() {
					t.Fatalf("address %v", ip)
				}
			}
			if ttl < 0 {
				t.Fatalf("TTL %v", ttl)
			}
		}
		if res, err := serviceRecords(msg, gossip+"."); err == nil {
			if n := len(res.answer.records); n == 0 || n > maxTargets {
				t.Fatalf("%d records", n)
			}
		}
	})
}

// A server that answers another question is not believed.
func TestAnAnswerToAnotherQuestionIsRefused(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	liar := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(up) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		reply.Question[0].Name = "other.example."
		reply.Answer = parseRecords([]string{q.Question[0].Name + " 60 IN A 10.0.0.1"})
		_ = w.WriteMsg(reply)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = liar.ActivateAndServe() }()
	<-up
	defer func() { _ = liar.Shutdown(); <-done }()
	g := newRig(t, func(c *ResolverConfig) { c.Servers = []string{packets.LocalAddr().String()} })
	if _, err := g.LookupHost(t.Context(), "relay.example", UseCache); err == nil || !strings.Contains(err.Error(), "another question") {
		t.Fatalf("got %v", err)
	}
}
