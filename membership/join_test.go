package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/identity"
)

// Without a packet only exchanges of states announce a member, and the regular ones are a minute
// apart.
func TestOfMembersThatStartTogetherTheFirstSoonSeesTheLast(t *testing.T) {
	inBubble(t, func(s *small) {
		s.network.SetLoss(1)
		s.node(nil)
		first := s.node(nil)
		time.Sleep(againAfter * 3 / 4)
		s.node(nil)
		time.Sleep(3 * againAfter)
		if n := count(first); n != 3 {
			t.Errorf("it sees %d members of 3", n)
		}
	})
}

// A seed of another cluster that ended does not refuse this node any more. It is silent, and its
// pauses must become longer.
func TestASeedThatIsGoneIsNotReportedWithItsLastRefusal(t *testing.T) {
	inBubble(t, func(s *small) {
		other := s.node(func(c *Config) { c.Cluster = "other" })
		b := s.node(func(c *Config) { c.Seeds = nil })
		addr := netip.MustParseAddrPort(other.Addr())
		var refusal *RefusalError
		if answered, err := b.joinAny(context.Background(), []netip.AddrPort{addr}, 1, b.probe); !errors.As(err, &refusal) || len(answered) != 1 {
			t.Fatalf("while it refuses: %v, %v answered", err, answered)
		}
		_ = other.Close()
		if answered, err := b.joinAny(context.Background(), []netip.AddrPort{addr}, 1, b.probe); err == nil || errors.As(err, &refusal) || len(answered) != 0 {
			t.Errorf("when it is gone: %v, %v answered", err, answered)
		}
	})
}

// silent is a host that no dial of which ends by itself.
type silent struct{ Network }

func (silent) Dial(ctx context.Context, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestANodeThatIsStoppedWhileItJoinsHasNotJoined(t *testing.T) {
	inBubble(t, func(s *small) {
		host := s.network.Host("10.0.0.9")
		node, err := New(Config{
			Cluster: homeCluster, Environment: homeEnvironment, ID: "n", Role: identity.RoleRelay,
			BindAddr: host.IP().String() + ":7400", Seeds: []string{"10.0.0.1"}, Network: silent{host},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.nodes, s.hosts = append(s.nodes, node), append(s.hosts, host)
		ctx, cancel := context.WithCancel(context.Background()) // of the bubble
		if err := node.Start(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		cancel()
		time.Sleep(time.Second)
		if node.Status().Joined {
			t.Error("it states that it has joined")
		}
	})
}

// aliased is a host at which one more address, alias, leads to a member.
type aliased struct {
	Network
	member atomic.Value // its address
}

const alias = "10.0.0.8:7400"

func leadsTo(network Network, member string) *aliased {
	a := &aliased{Network: network}
	a.member.Store(member)
	return a
}

func (a *aliased) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == alias {
		addr = a.member.Load().(string)
	}
	return a.Network.Dial(ctx, addr)
}

// A seed name may lead to another address of the node's own listener. The other seed is not there yet.
func TestANodeThatReachesOnlyItselfHasNotJoined(t *testing.T) {
	for _, secure := range []bool{false, true} {
		inBubble(t, func(s *small) {
			a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 1000 * time.Hour, Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			s.network.Host("10.0.0.9")
			n := s.node(func(c *Config) {
				c.Network = leadsTo(c.Network, "10.0.0.1:7400")
				c.Seeds = []string{alias, "10.0.0.9:7400"}
				if secure {
					certified(t, a, c, nil)
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			if err := n.WaitReady(ctx); err == nil {
				t.Error("a node that has reached no other member is ready")
			}
			if ok := testutil.ToFloat64(n.metrics.joins.WithLabelValues(joinOK)); ok != 0 {
				t.Errorf("%v joins of itself count", ok)
			}
			s.node(func(c *Config) {
				c.BindAddr, c.Network, c.Seeds = "10.0.0.9:7400", s.network.Host("10.0.0.9"), nil
				if secure {
					certified(t, a, c, nil)
				}
			})
			ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := n.WaitReady(ctx); err != nil {
				t.Errorf("when the other seed is there: %v", err)
			}
		})
	}
}

// It waits for no other, as one whose seed is its own address.
func TestANodeWhoseOnlySeedLeadsToItselfIsReady(t *testing.T) {
	inBubble(t, func(s *small) {
		n := s.node(func(c *Config) {
			c.Network = leadsTo(c.Network, "10.0.0.1:7400")
			c.Seeds = []string{alias}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := n.WaitReady(ctx); err != nil {
			t.Error(err)
		}
	})
}

// The address of a load balancer may lead to the node itself first and to another member later.
func TestASeedThatLedToTheNodeItselfIsTriedAgain(t *testing.T) {
	inBubble(t, func(s *small) {
		var network *aliased
		n := s.node(func(c *Config) {
			network = leadsTo(c.Network, "10.0.0.1:7400")
			c.Network, c.Seeds = network, []string{alias}
		})
		s.node(func(c *Config) { c.Seeds = nil })
		time.Sleep(10 * time.Second)
		network.member.Store("10.0.0.2:7400")
		time.Sleep(3*n.cfg.RejoinInterval + 5*time.Second)
		if count(n) != 2 {
			t.Errorf("it sees %d members", count(n))
		}
	})
}

// Each join is an exchange of all states, which a member that is seen does not need.
func TestASeedAtASecondAddressOfAMemberIsNotJoinedAgainAndAgain(t *testing.T) {
	inBubble(t, func(s *small) {
		s.node(nil)
		n := s.node(func(c *Config) {
			c.Network = leadsTo(c.Network, "10.0.0.1:7400")
			c.Seeds = []string{alias}
		})
		time.Sleep(10 * time.Second)
		if count(n) != 2 {
			t.Fatalf("it sees %d members", count(n))
		}
		ok := n.metrics.joins.WithLabelValues(joinOK)
		before := testutil.ToFloat64(ok)
		time.Sleep(20 * n.cfg.RejoinInterval)
		if more := testutil.ToFloat64(ok) - before; more != 0 {
			t.Errorf("%v more joins", more)
		}
	})
}

func TestALostMemberIsNotLookedForWhereAnotherFleetAnswers(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		ours, theirs int // authorities, 0 without certificates
	}{{"without certificates", fieldCluster, 0, 0}, {"of one authority", fieldCluster, 1, 1}, {"of two authorities", "unknown_authority", 1, 2}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(s *small) {
				authorities := make(map[int]*identity.Authority)
				for n := 1; n <= 2; n++ {
					a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 1000 * time.Hour, Now: time.Now})
					if err != nil {
						t.Fatal(err)
					}
					authorities[n] = a
				}
				member := func(authority int, change func(*Config)) *Node {
					return s.node(func(c *Config) {
						change(c)
						if authority != 0 {
							source, err := authorities[authority].Source(claimsOf(c), 100*time.Hour)
							if err != nil {
								t.Fatal(err)
							}
							c.Identity = source
						}
					})
				}
				a := member(c.ours, func(*Config) {})
				member(c.ours, func(*Config) {})
				member(c.ours, func(*Config) {})
				time.Sleep(5 * time.Second)
				if count(a) != 3 {
					t.Fatalf("it sees %d members", count(a))
				}
				s.hosts[1].Crash()
				_ = s.nodes[1].Close()
				member(c.theirs, func(c *Config) {
					c.Cluster, c.BindAddr, c.Network, c.Seeds = "other", "10.0.0.2:7400", s.network.Host("10.0.0.2"), nil
				})
				time.Sleep(time.Hour)
				refused := a.metrics.refusals.WithLabelValues(outbound, c.reason)
				before := testutil.ToFloat64(refused)
				if before == 0 {
					t.Fatal("the lost member was not looked for")
				}
				time.Sleep(3 * time.Hour)
				if more := testutil.ToFloat64(refused) - before; more != 0 {
					t.Errorf("the other fleet has refused %v more attempts", more)
				}
			})
		})
	}
}

// No member fails after the first one, so nothing else reminds the node of the time.
func TestALostMemberIsNotLookedForAfterADay(t *testing.T) {
	inBubble(t, func(s *small) {
		s.node(nil)
		s.node(nil)
		s.node(nil)
		time.Sleep(5 * time.Second)
		s.hosts[1].Crash()
		_ = s.nodes[1].Close()
		time.Sleep(lostTTL + time.Hour)
		before := s.network.Counters().DialsRefused
		time.Sleep(time.Hour)
		if more := s.network.Counters().DialsRefused - before; more != 0 {
			t.Errorf("%d attempts in the 26th hour", more)
		}
	})
}

// Without packets a stream to its holder is the only way to a certificate, one for each member.
func TestAMemberThatJoinsWithoutPacketsSoonSeesAll(t *testing.T) {
	inBubble(t, func(s *small) {
		s.network.SetLoss(1)
		a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 1000 * time.Hour, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		const members = 40
		member := func() *Node {
			return s.node(func(c *Config) {
				c.ID = fmt.Sprintf("n%d", len(s.nodes))
				certified(t, a, c, nil)
			})
		}
		for range members - 1 {
			member()
		}
		time.Sleep(2 * time.Minute)
		last := member()
		time.Sleep(15 * time.Second)
		if n := count(last); n != members {
			t.Errorf("it sees %d members of %d", n, members)
		}
	})
}
