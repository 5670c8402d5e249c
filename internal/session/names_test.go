package session

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/discovery"
)

// zone answers every question with one address, for five minutes; without one it is silent.
type zone struct {
	mu   sync.Mutex
	host string
}

func (z *zone) set(host string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.host = host
}

func (z *zone) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.host == "" {
		return
	}
	m := new(dns.Msg).SetReply(r)
	if q := r.Question[0]; q.Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: net.ParseIP(z.host)}}
	}
	_ = w.WriteMsg(m)
}

// named is a client that has begun, whose seed is a name of the zone.
func named(t *testing.T, z *zone, port string, timeout time.Duration) *Client {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, done := &dns.Server{PacketConn: packets, Handler: z}, make(chan struct{})
	go func() { defer close(done); _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = packets.Close(); <-done })
	resolver, err := discovery.NewResolver(discovery.ResolverConfig{Servers: []string{packets.LocalAddr().String()}, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(Config{Member: membership.Config{ID: "w1", Cluster: "c", Environment: "e", Resolver: resolver}, Seeds: []string{"dns+relays.ringway.test:" + port}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAWorkerThatHasLostItsRelaysFindsTheirNewAddressesBeforeTheOldOnesExpire(t *testing.T) {
	t.Parallel()
	z := &zone{host: "127.0.0.1"}
	self := RowRelay{ID: "r1", Epoch: 1}
	address, _, _ := relay(t, self.ID, func() RowRelay { return self })
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != z.host {
		t.Fatal(address, err)
	}
	self.Address = address
	next, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	came, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { _ = next.Close(); <-done })
	go func() {
		defer close(done)
		if conn, err := next.Accept(); err == nil {
			close(came)
			_ = conn.Close()
		}
	}()
	c := named(t, z, port, 2*time.Second)
	procs.Await(t, "a session with the relay at the first address", func() bool { return c.Status().Joined })
	z.set("127.0.0.2")
	c.mu.Lock()
	for _, l := range c.links { // the relay takes no second session
		l.move()
	}
	c.mu.Unlock()
	select {
	case <-came:
	case <-time.After(procs.Patience):
		t.Fatal("the worker does not dial the new address")
	}
}

func TestAWorkerWithoutASessionReportsWhyItsSeedsDoNotResolve(t *testing.T) {
	t.Parallel()
	c := named(t, new(zone), "7420", 10*time.Millisecond)
	procs.Await(t, "the status names the error of the DNS and its remedy", func() bool {
		text := fmt.Sprint(c.Status().Err)
		return strings.Contains(text, "relays.ringway.test") && strings.Contains(text, "correct --attach or the DNS")
	})
}
