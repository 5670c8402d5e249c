package membership

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/ringway/ringway/membership/discovery"
)

const (
	gossipName = "gossip.ringway.test"
	// silence is how long, in real time, a node of a history waits for the name
	// server: a query is real, so the virtual clock stands still meanwhile.
	silence = 20 * time.Millisecond
)

// nameServer is a real DNS server on loopback, for nodes under a virtual clock. It
// runs outside of the bubble: inside, its waiting for a question would stop the
// clock without end.
type nameServer struct {
	addr string

	mu     sync.Mutex
	mode   string // "fails", "is silent", else it answers
	hosts  []netip.Addr
	asked  int
	failed int
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{}
	s.addr = serveDNS(t, s)
	return s
}

func (s *nameServer) Set(mode string, hosts []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode, s.hosts = mode, hosts
}

// ServeDNS answers for every name the same.
func (s *nameServer) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(r)
	s.asked++
	switch s.mode {
	case "is silent":
		s.failed++
		return
	case "fails":
		s.failed++
		m.Rcode = dns.RcodeServerFailure
	default:
		if q := r.Question[0]; q.Qtype == dns.TypeA {
			for _, a := range s.hosts {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: a.AsSlice()})
			}
		}
	}
	_ = w.WriteMsg(m) // a lost answer is the client's to bear
}

// Through makes a node look for the others by name.
func (s *nameServer) Through(cfg *Config) (err error) {
	cfg.Seeds = []string{"dns+" + gossipName}
	cfg.Resolver, err = discovery.NewResolver(discovery.ResolverConfig{
		Servers: []string{s.addr}, Timeout: silence, Logger: cfg.Logger,
	})
	return err
}
