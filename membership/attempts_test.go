package membership

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/discovery"
)

func (s *nameServer) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// byName makes a node look for the others by name, with a cache as configured.
func (s *nameServer) byName(t *testing.T, c *Config, negative time.Duration) {
	t.Helper()
	r, err := discovery.NewResolver(discovery.ResolverConfig{Servers: []string{s.addr}, NegativeTTL: negative})
	if err != nil {
		t.Fatal(err)
	}
	c.Seeds, c.Resolver = []string{"dns+" + gossipName}, r
}

func ips(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestAStartAsksForANameOnce(t *testing.T) {
	names := startNameServer(t)
	names.Set("", ips("10.0.0.1"))
	inBubble(t, func(s *small) {
		s.node(nil)
		b := s.node(func(c *Config) { names.byName(t, c, 0) })
		time.Sleep(4 * time.Second) // the TTL is 5 s
		if count(b) != 2 {
			t.Errorf("b sees %d members", count(b))
		}
		if n := names.questions(); n != 2 {
			t.Errorf("%d questions, want one for each of A and AAAA", n)
		}
	})
}

func TestAJoinerDoesNotAskForAFailedNameWhileTheFailureCounts(t *testing.T) {
	for _, negative := range []time.Duration{10 * time.Second, time.Minute} {
		names := startNameServer(t)
		names.Set("fails", nil)
		inBubble(t, func(s *small) {
			s.node(nil)
			b := s.node(func(c *Config) { names.byName(t, c, negative) })
			time.Sleep(negative - time.Second)
			if n := names.questions(); n != 2 {
				t.Errorf("failures count for %v: %d questions before that, want 2", negative, n)
			}
			time.Sleep(10*negative - negative)
			// Each failure is followed by the next question a jitter later.
			if n := names.questions(); n < 2*8 || n > 2*11 {
				t.Errorf("failures count for %v: %d questions in ten times that, want about 20", negative, n)
			}
			names.Set("", ips("10.0.0.1"))
			time.Sleep(2*negative + 20*time.Second)
			if count(b) != 2 {
				t.Error("b does not join when the name resolves")
			}
		})
	}
}

func TestASeedThatNeverAnswersIsTriedLessAndLessWhileMembersLive(t *testing.T) {
	inBubble(t, func(s *small) {
		s.network.Host("10.0.0.99")
		with := func(c *Config) { c.Seeds = []string{"10.0.0.1", "10.0.0.99"} }
		a, b := s.node(with), s.node(with)
		refused := func() uint64 { return s.network.Counters().DialsRefused }
		time.Sleep(time.Hour)
		if count(a) != 2 || count(b) != 2 {
			t.Fatalf("a sees %d, b %d", count(a), count(b))
		}
		before := refused()
		time.Sleep(2 * time.Hour)
		// Two members, each after 4 to 7 minutes, each with a probe and a join.
		if n := refused() - before; n < 4*15 || n > 4*31 {
			t.Errorf("%d attempts in two hours, want about 90", n)
		}
		s.node(func(c *Config) { c.BindAddr, c.Network, c.Seeds = "10.0.0.99:7400", s.network.Host("10.0.0.99"), nil })
		time.Sleep(8 * time.Minute)
		if count(a) != 3 || count(b) != 3 {
			t.Errorf("the seed is there again: a sees %d, b %d", count(a), count(b))
		}
	})
}

func TestALostMemberIsTriedAtTheFullPaceForAnHour(t *testing.T) {
	inBubble(t, func(s *small) {
		s.node(nil)
		s.node(nil)
		s.node(nil)
		time.Sleep(5 * time.Second)
		s.hosts[2].Crash()
		_ = s.nodes[2].Close()
		time.Sleep(time.Minute)
		before := s.network.Counters().DialsRefused
		time.Sleep(50 * time.Minute)
		// Two members, each after 15 to 45 s, each with a probe and a join.
		early := s.network.Counters().DialsRefused - before
		if early < 4*80 {
			t.Errorf("%d attempts in the first 50 minutes, want about 400", early)
		}
		time.Sleep(time.Hour)
		before = s.network.Counters().DialsRefused
		time.Sleep(50 * time.Minute)
		if late := s.network.Counters().DialsRefused - before; late == 0 || late > 4*14 {
			t.Errorf("%d attempts in 50 minutes two hours later, want about 40", late)
		}
	})
}

func TestASeedThatDNSGivesAnewIsTriedSoon(t *testing.T) {
	names := startNameServer(t)
	both := ips("10.0.0.1", "10.0.0.99")
	names.Set("", both)
	inBubble(t, func(s *small) {
		s.network.Host("10.0.0.99")
		s.node(func(c *Config) { c.Seeds = nil })
		s.node(func(c *Config) { names.byName(t, c, 0) })
		time.Sleep(time.Hour)
		for range 5 { // by chance the next attempt falls into one such minute of five
			names.Set("", both[:1])
			time.Sleep(10 * time.Second)
			before := s.network.Counters().DialsRefused
			names.Set("", both)
			time.Sleep(time.Minute)
			if s.network.Counters().DialsRefused == before {
				t.Error("not tried within a minute of its return to DNS")
			}
			time.Sleep(30 * time.Minute)
		}
	})
}
