package membership

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

const homeCluster, homeEnvironment = "home", "test"

// shownBy names, for every field of Config, a test that fails when the field
// changes nothing.
var shownBy = map[string]string{
	"Cluster":         "TestAForeignClusterIsRefusedOnBothSidesAndNeverSeen",
	"Environment":     "TestWhoIsRefusedForItsCertificateOrKeyLearnsWhy",
	"ID":              "TestASecondProcessWithOurIDIsReported",
	"Role":            "TestAStreamReachesTheMemberItNames",
	"Datacenter":      "TestMembersFindEachOtherThroughOneSeedAndAgree",
	"Region":          "TestTheOthersLearnTheMetadataOfANode",
	"BindAddr":        "TestANodeListensAtItsBindAddressAndIsFoundAtItsAdvertiseAddress",
	"AdvertiseAddr":   "TestANodeListensAtItsBindAddressAndIsFoundAtItsAdvertiseAddress",
	"ForwardAddr":     "TestTheOthersLearnTheMetadataOfANode",
	"AdminAddr":       "TestTheOthersLearnTheMetadataOfANode",
	"Version":         "TestTheOthersLearnTheMetadataOfANode",
	"Seeds":           "TestMembersFindEachOtherThroughOneSeedAndAgree",
	"Resolver":        "TestAClusterIsFoundByNameAndAgainAfterEveryAddressChanged",
	"RejoinInterval":  "TestALongerRejoinIntervalLooksForTheLostLater",
	"PublishInterval": "TestALongerPublishIntervalShowsABurstLaterAndTogether",
	"LeaveTimeout":    "TestAShorterLeaveTimeoutGoesSooner",
	"MaxMembers":      "TestNoMoreMembersAreLetInThanTheLimitAllows",
	"MaxNewMembers":   "TestOneMemberAnnouncesNoMoreUnprovenOnesAMinuteThanTheLimitAllows",
	"Identity":        "TestWhoIsRefusedForItsCertificateOrKeyLearnsWhy",
	"Keyring":         "TestWithoutCertificatesAnotherKeyIsRefusedOnBothSides",
	"Network":         "TestANodeListensAtItsBindAddressAndIsFoundAtItsAdvertiseAddress",
	"Logger":          "TestAForeignClusterIsRefusedOnBothSidesAndNeverSeen",
	"Registerer":      "TestTheMetricsAreInTheConfiguredRegisterer",
	"clock":           "TestASecondProcessWithOurIDIsReported",
}

func TestEveryConfigFieldChangesBehaviour(t *testing.T) {
	tests := make(map[string]bool)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = true
			}
		}
	}
	fields := make(map[string]bool)
	for f := range reflect.TypeFor[Config]().Fields() {
		fields[f.Name] = true
		if test, named := shownBy[f.Name]; !named {
			t.Errorf("no test shows that Config.%s changes anything", f.Name)
		} else if !tests[test] {
			t.Errorf("Config.%s is to be shown by %s, which does not exist", f.Name, test)
		}
	}
	for name := range shownBy {
		if !fields[name] {
			t.Errorf("Config has no field %s", name)
		}
	}
}

// small is a few nodes under a virtual clock, on hosts 10.0.0.1, 10.0.0.2, …
type small struct {
	t       *testing.T
	network *memnet.Network
	hosts   []*memnet.Host
	nodes   []*Node
}

func inBubble(t *testing.T, run func(*small)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &small{t: t, network: memnet.New(memnet.Config{Seed: 1, Latency: time.Millisecond})}
		defer func() {
			for _, n := range s.nodes {
				_ = n.Close()
			}
			_ = s.network.Close()
			time.Sleep(10 * time.Minute) // until memberlist's goroutines are gone, too
		}()
		run(s)
	})
}

// node starts the next node: a, b, …, each with a as its seed.
func (s *small) node(change func(*Config)) *Node {
	s.t.Helper()
	n := len(s.nodes)
	host := s.network.Host(fmt.Sprintf("10.0.0.%d", 1+n))
	cfg := Config{
		Cluster: homeCluster, Environment: homeEnvironment, ID: string(rune('a' + n)), Role: identity.RoleRelay,
		BindAddr: host.IP().String() + ":7400", Seeds: []string{"10.0.0.1"}, Network: host,
	}
	if change != nil {
		change(&cfg)
	}
	node, err := New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.nodes, s.hosts = append(s.nodes, node), append(s.hosts, host)
	if err := node.Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	return node
}

// count is how many members a node sees.
func count(n *Node) int { return len(n.Snapshot().Members()) }

func TestTheOthersLearnTheMetadataOfANode(t *testing.T) {
	inBubble(t, func(s *small) {
		a := s.node(nil)
		b := s.node(func(c *Config) {
			c.Region, c.ForwardAddr, c.AdminAddr, c.Version = "eu", "10.0.0.2:7420", "10.0.0.2:7430", "v1.2.3"
		})
		time.Sleep(5 * time.Second)
		got, _ := a.Snapshot().Get("b")
		want := Member{
			ID: "b", Epoch: b.Epoch(), Role: identity.RoleRelay, Cluster: homeCluster, Environment: homeEnvironment, GossipAddr: "10.0.0.2:7400",
			Region: "eu", ForwardAddr: "10.0.0.2:7420", AdminAddr: "10.0.0.2:7430", Version: "v1.2.3",
		}
		if got != want {
			t.Errorf("a sees  %+v\nwant    %+v", got, want)
		}
	})
}

func TestANodeListensAtItsBindAddressAndIsFoundAtItsAdvertiseAddress(t *testing.T) {
	inBubble(t, func(s *small) {
		a := s.node(func(c *Config) { c.BindAddr, c.AdvertiseAddr = "0.0.0.0:7999", "10.0.0.1:7999" })
		b := s.node(func(c *Config) { c.Seeds = []string{"10.0.0.1:7999"} })
		time.Sleep(5 * time.Second)
		if m, _ := b.Snapshot().Get("a"); m.GossipAddr != "10.0.0.1:7999" || a.Addr() != m.GossipAddr {
			t.Errorf("b sees a at %q, a says %q", m.GossipAddr, a.Addr())
		}
		if count(a) != 2 {
			t.Errorf("a sees %d members", count(a))
		}
		// Its advertised address may lead nowhere: then it is not found.
		s.node(func(c *Config) { c.AdvertiseAddr = "10.0.0.99:7400"; c.Seeds = []string{"10.0.0.1:7999"} })
		time.Sleep(time.Minute)
		if _, seen := a.Snapshot().Get("c"); seen {
			t.Error("a member that cannot be reached stays")
		}
		if _, err := s.hosts[0].Listen("10.0.0.1:7999"); err == nil {
			t.Error("a does not listen at its port")
		}
	})
}

func TestALongerRejoinIntervalLooksForTheLostLater(t *testing.T) {
	for _, c := range []struct {
		interval, by time.Duration
		back         bool
	}{
		{10 * time.Second, 4 * time.Minute, true},
		{20 * time.Minute, 4 * time.Minute, false}, // the first round is after ten minutes at least
		{20 * time.Minute, time.Hour, true},
	} {
		inBubble(t, func(s *small) {
			a := s.node(func(cfg *Config) { cfg.RejoinInterval = c.interval })
			s.node(func(cfg *Config) { cfg.RejoinInterval = c.interval })
			time.Sleep(5 * time.Second)
			s.network.Blackhole(s.hosts[1].IP())
			time.Sleep(5 * time.Minute)
			if count(a) != 1 {
				t.Fatalf("a sees %v", IDs(a.Snapshot().Members()))
			}
			s.network.Heal()
			time.Sleep(c.by)
			if back := count(a) == 2; back != c.back {
				t.Errorf("interval %v: b is back %v after the end of a split: %v", c.interval, c.by, back)
			}
		})
	}
}

// Its requests come from relays only, so it does not wait for the next round.
func TestAWorkerThatSeesNoRelayLooksForOneEveryFewSeconds(t *testing.T) {
	for _, c := range []struct {
		role identity.Role
		back bool
	}{{identity.RoleWorker, true}, {identity.RoleRelay, false}} {
		inBubble(t, func(s *small) {
			late := func(cfg *Config) { cfg.RejoinInterval = 20 * time.Minute }
			s.node(late)
			b := s.node(func(cfg *Config) { late(cfg); cfg.Role = c.role })
			s.node(func(cfg *Config) { late(cfg); cfg.Role, cfg.Seeds = identity.RoleWorker, []string{"10.0.0.2"} })
			time.Sleep(5 * time.Second)
			s.network.Blackhole(s.hosts[0].IP())
			time.Sleep(2 * time.Minute)
			if count(b) != 2 {
				t.Fatalf("b sees %v", IDs(b.Snapshot().Members()))
			}
			s.network.Heal()
			time.Sleep(15 * time.Second) // one attempt may still be under way
			if back := count(b) == 3; back != c.back {
				t.Errorf("a %s that has lost the relay finds it within 15 s: %v", c.role, back)
			}
		})
	}
}

func TestALongerPublishIntervalShowsABurstLaterAndTogether(t *testing.T) {
	inBubble(t, func(s *small) {
		slow := s.node(func(c *Config) { c.PublishInterval = time.Minute })
		before := slow.Snapshot().Version()
		quick := s.node(nil)
		for range 5 {
			s.node(nil)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		if count(quick) != 7 || count(slow) != 1 {
			t.Errorf("after 15 s the quick one sees %d, the slow one %d", count(quick), count(slow))
		}
		time.Sleep(time.Minute)
		if published := slow.Snapshot().Version() - before; count(slow) != 7 || published > 2 {
			t.Errorf("after 75 s the slow one sees %d, from %d snapshots", count(slow), published)
		}
	})
}

func TestByDefaultOnlyTheCostOfTheCopyDelaysASnapshot(t *testing.T) {
	inBubble(t, func(s *small) {
		n := s.node(nil)
		time.Sleep(time.Second)
		for i := range 3 {
			m := n.metadata()
			m.ID = fmt.Sprintf("w%d", i)
			meta, err := m.Encode(0)
			if err != nil {
				t.Fatal(err)
			}
			n.mailbox.post(event{name: gossip.InstanceName(m.ID, m.Epoch), meta: meta, addr: "10.0.0.9:7400"})
			time.Sleep(5 * intervalPerMember)
			synctest.Wait()
			if count(n) != 2+i {
				t.Errorf("%d members 25 µs after the %d. joined in a row", count(n), i+1)
			}
		}
	})
}

func TestAShorterLeaveTimeoutGoesSooner(t *testing.T) {
	leave := func(timeout time.Duration) (took time.Duration) {
		inBubble(t, func(s *small) {
			s.node(nil)
			b := s.node(func(c *Config) { c.LeaveTimeout = timeout })
			time.Sleep(5 * time.Second)
			began := time.Now()
			_ = b.Leave(context.Background()) // in a hurry it returns that the notice was not sent
			took = time.Since(began)
		})
		return took
	}
	hasty, patient := leave(20*time.Millisecond), leave(0)
	if hasty > 20*time.Millisecond || patient <= hasty {
		t.Errorf("a leave took %v with a timeout of 20 ms, %v with the default", hasty, patient)
	}
}

func TestTheMetricsAreInTheConfiguredRegisterer(t *testing.T) {
	inBubble(t, func(s *small) {
		registry := prometheus.NewRegistry()
		s.node(func(c *Config) { c.Registerer = registry })
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range families {
			names = append(names, f.GetName())
		}
		if !strings.Contains(strings.Join(names, " "), "ringway_membership_members") {
			t.Errorf("gathered %v", names)
		}
	})
}
