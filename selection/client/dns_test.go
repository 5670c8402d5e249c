package client

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/membership/discovery"
)

// zone is a DNS server on loopback that lists relays.
type zone struct {
	resolver *discovery.Resolver
	mu       sync.Mutex
	relays   []*relay
	down     bool
	asked    int // for services
	ttl      int // of its records, in seconds
}

func newZone(t testing.TB) *zone {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{ttl: 1}
	up, ended := make(chan struct{}), make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(up) }, Handler: dns.HandlerFunc(z.answer)}
	go func() { defer close(ended); _ = server.ActivateAndServe() }()
	<-up
	t.Cleanup(func() { _ = server.Shutdown(); <-ended })
	z.resolver, err = discovery.NewResolver(discovery.ResolverConfig{Servers: []string{packets.LocalAddr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func (z *zone) list(relays ...*relay) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.relays, z.down = relays, len(relays) == 0
}

func (z *zone) answer(w dns.ResponseWriter, question *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	reply := new(dns.Msg).SetReply(question)
	q := question.Question[0]
	if q.Qtype == dns.TypeSRV {
		z.asked++
	}
	switch {
	case z.down:
		reply.Rcode = dns.RcodeServerFailure
	case q.Qtype == dns.TypeSRV:
		for _, r := range z.relays {
			_, port, _ := net.SplitHostPort(r.addr)
			rr, _ := dns.NewRR(fmt.Sprintf("%s %d IN SRV 0 0 %s relay.test.", q.Name, z.ttl, port))
			reply.Answer = append(reply.Answer, rr)
		}
	case q.Qtype == dns.TypeA:
		rr, _ := dns.NewRR(fmt.Sprintf("%s %d IN A 127.0.0.1", q.Name, z.ttl))
		reply.Answer = append(reply.Answer, rr)
	}
	_ = w.WriteMsg(reply)
}

// Every relay is replaced by one at another address, twice, while requests go on.
func TestAFleetWhoseEveryAddressChangesIsFollowedWithoutLosingARequest(t *testing.T) {
	noContent := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	z := newZone(t)
	relays := newRelays(t, 4, noContent)
	z.list(relays...)
	c, web := running(t, Config{
		Seeds: []string{"srv+_relay._tcp.relays.test"}, Resolver: z.resolver,
		RefreshInterval: 20 * time.Millisecond, RefreshJitter: time.Millisecond,
	})
	traffic := load(t, func() error {
		_, _, err := get(web, "http://billing/a")
		return err
	})
	traffic.more(20)
	for range 2 {
		next := newRelays(t, 4, noContent)
		z.list(next...)
		eventually(t, c, "the new relays are known and the old ones forgotten", func(s relaypool.Status) bool {
			var ids []string
			for _, p := range s.Peers {
				ids = append(ids, p.ID)
			}
			want := addrs(next)
			slices.Sort(want)
			return slices.Equal(ids, want) && len(s.Primaries) == 3
		})
		for _, r := range relays {
			r.leave()
		}
		traffic.more(50)
		relays = next
	}
	traffic.stop()
}

func TestSeedsAreLookedUpAfterTheIntervalAndTheJitter(t *testing.T) {
	for _, c := range []struct {
		interval, jitter time.Duration
		often            bool
	}{{20 * time.Millisecond, time.Millisecond, true}, {time.Hour, time.Millisecond, false}, {20 * time.Millisecond, 1000 * time.Hour, false}} {
		z := newZone(t)
		z.ttl = 3600 // the end of a short one would be another reason for a lookup
		z.list(newRelay(t, nil))
		cl, _ := running(t, Config{Seeds: []string{"srv+_relay._tcp.relays.test"}, Resolver: z.resolver, RefreshInterval: c.interval, RefreshJitter: c.jitter})
		settled(t, cl, 1)
		asked := func() int { z.mu.Lock(); defer z.mu.Unlock(); return z.asked }
		if c.often {
			eventually(t, cl, "ten lookups", func(relaypool.Status) bool { return asked() >= 10 })
			continue
		}
		time.Sleep(200 * time.Millisecond) // nothing is to happen
		if n := asked(); n != 1 {
			t.Errorf("%v and %v: %d lookups in 200 ms", c.interval, c.jitter, n)
		}
	}
}

// A relay is replaced in DNS, and nothing is lost that would make the client look.
func TestSeedsAreLookedUpAgainWhenTheirTTLHasPassed(t *testing.T) {
	z := newZone(t) // whose TTL is a second
	old, next := newRelay(t, nil), newRelay(t, nil)
	z.list(old)
	c, _ := running(t, Config{Seeds: []string{"srv+_relay._tcp.relays.test"}, Resolver: z.resolver, RefreshInterval: time.Hour})
	settled(t, c, 1)
	z.list(old, next)
	eventually(t, c, "the new relay is used", func(s relaypool.Status) bool { return slices.Contains(s.Primaries, next.addr) })
}

func TestWhenDNSDiesTheRelaysThatAreKnownGoOnServing(t *testing.T) {
	z := newZone(t)
	r := newRelay(t, nil)
	z.list(r)
	c, web := running(t, Config{
		Seeds: []string{"srv+_relay._tcp.relays.test"}, Resolver: z.resolver, RefreshInterval: 10 * time.Millisecond, RefreshJitter: time.Millisecond,
	})
	if _, _, err := get(web, "http://billing/a"); err != nil {
		t.Fatal(err)
	}
	z.list()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if _, _, err := get(web, "http://billing/a"); err != nil {
			t.Fatal(err)
		}
	}
	if s := c.status(); len(s.Peers) != 1 {
		t.Errorf("peers %+v", s.Peers)
	}
}

// A relay is lost and DNS has its new address: the client does not wait for the interval.
func TestALostRelayIsLookedUpAgainSoon(t *testing.T) {
	z := newZone(t)
	old := newRelay(t, nil)
	z.list(old)
	c, web := running(t, Config{Seeds: []string{"srv+_relay._tcp.relays.test"}, Resolver: z.resolver, RefreshInterval: time.Hour})
	if _, _, err := get(web, "http://billing/a"); err != nil {
		t.Fatal(err)
	}
	next := newRelay(t, nil)
	z.list(next)
	old.kill()
	eventually(t, c, "the new relay is used", func(s relaypool.Status) bool { return slices.Contains(s.Primaries, next.addr) })
}

func TestASeedWithoutAPortMeansTheIngress(t *testing.T) {
	c, err := New(Config{Seeds: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.finder.Addrs()[0].String(), "127.0.0.1:"+strconv.Itoa(defaultPort); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
