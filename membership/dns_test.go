package membership

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/ringway/ringway/membership/discovery"
)

// zone is a real DNS server on loopback that answers _gossip._udp.ringway.test
// with what it was given.
type zone struct {
	mu     sync.Mutex
	broken bool
	addrs  []string
	addr   string
}

func startZone(t *testing.T) *zone {
	t.Helper()
	z := &zone{}
	z.addr = serveDNS(t, z)
	return z
}

// serveDNS answers on loopback until the test ends, and returns where.
func serveDNS(t *testing.T, h dns.Handler) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: pc, Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ActivateAndServe()
	}()
	t.Cleanup(func() {
		_ = pc.Close()
		<-done
	})
	return pc.LocalAddr().String()
}

func (z *zone) set(broken bool, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.broken, z.addrs = broken, addrs
}

func (z *zone) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(r)
	if z.broken {
		m.Rcode = dns.RcodeServerFailure
	} else if q := r.Question[0]; q.Qtype == dns.TypeSRV {
		for i, text := range z.addrs {
			a := netip.MustParseAddrPort(text)
			target := "n" + strconv.Itoa(i) + ".ringway.test."
			m.Answer = append(m.Answer, &dns.SRV{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeSRV, Class: dns.ClassINET, Ttl: 1}, Priority: 1, Weight: 1, Port: a.Port(), Target: target})
			m.Extra = append(m.Extra, &dns.A{Hdr: dns.RR_Header{Name: target, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: a.Addr().AsSlice()})
		}
	}
	_ = w.WriteMsg(m) // a lost answer is the client's to bear
}

// through makes the node look for its seeds in the zone.
func (z *zone) through(t *testing.T, c *Config) {
	t.Helper()
	r, err := discovery.NewResolver(discovery.ResolverConfig{Servers: []string{z.addr}, NegativeTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c.Resolver, c.Seeds, c.RejoinInterval = r, []string{"srv+_gossip._udp.ringway.test"}, 200*time.Millisecond
}

func TestAClusterIsFoundByNameAndAgainAfterEveryAddressChanged(t *testing.T) {
	z := startZone(t)
	first := start(t, func(c *Config) { c.ID = "a" })
	z.set(false, first.Addr())
	watcher := start(t, func(c *Config) { c.ID = "watcher"; z.through(t, c) })
	watcher.await(t, "a", sees("a", "watcher"))

	// While the name server is down, no member is dropped.
	z.set(true)
	start(t, func(c *Config) { c.ID, c.Seeds = "b", []string{watcher.Addr()} })
	watcher.await(t, "b", sees("a", "b", "watcher"))

	// a returns at another address and knows no member: only the name leads to it.
	_ = first.Close()
	again := start(t, func(c *Config) { c.ID = "a" })
	z.set(false, again.Addr())
	watcher.await(t, "a at its new address", func(s *Snapshot) bool {
		m, ok := s.Get("a")
		return ok && m.GossipAddr == again.Addr()
	})
}

func TestANodeWithoutANameServerLogsItAndJoinsWhenThereIsOne(t *testing.T) {
	z := startZone(t)
	z.set(true)
	seed := start(t, func(c *Config) { c.ID = "a" })
	n := start(t, func(c *Config) { c.ID = "b"; z.through(t, c) })
	if got := n.refusedFor(t); got == "" {
		t.Error("no reason given")
	}
	z.set(false, seed.Addr())
	n.await(t, "a", sees("a", "b"))
}
