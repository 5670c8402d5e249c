package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// patience bounds every wait of these tests. They wait for events, so it is
// reached only when something is broken.
const patience = 30 * time.Second

type testNode struct {
	*Node
	reg *prometheus.Registry
	log *logtest.Log
}

// start runs a real node on loopback that is closed with the test.
func start(t *testing.T, change func(*Config)) *testNode {
	t.Helper()
	return startPrepared(t, change, func(*Node) error { return nil })
}

// gossipAs makes a node gossip other metadata than its own from its start on.
func gossipAs(n *Node, change func(*gossip.Metadata)) error {
	m := n.metadata()
	change(&m)
	return n.setMetadata(m)
}

// startPrepared calls prepare between New and Start.
func startPrepared(t *testing.T, change func(*Config), prepare func(*Node) error) *testNode {
	t.Helper()
	tn := &testNode{reg: prometheus.NewRegistry(), log: &logtest.Log{}}
	cfg := Config{
		Cluster: "test", Environment: "ci", ID: "n", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0",
		Registerer: tn.reg, Logger: slog.New(slog.NewTextHandler(tn.log, nil)),
	}
	change(&cfg)
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(prepare(n), n.Start(context.Background())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	tn.Node = n
	return tn
}

// await returns the first snapshot that satisfies cond.
func (n *testNode) await(t *testing.T, what string, cond func(*Snapshot) bool) *Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for s := range n.Watch(ctx) {
		if cond(s) {
			return s
		}
	}
	t.Fatalf("%s never saw: %s; it sees %v\n%s", n.ID(), what, n.Snapshot().Members(), n.log)
	return nil
}

func sees(ids ...string) func(*Snapshot) bool {
	return func(s *Snapshot) bool {
		for _, id := range ids {
			if _, ok := s.Get(id); !ok {
				return false
			}
		}
		return len(s.Members()) == len(ids)
	}
}

func TestMembersFindEachOtherThroughOneSeedAndAgree(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1"; c.ForwardAddr = "127.0.0.1:7420" })
	w1 := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{seed.Addr()}
		c.Datacenter = "ams1"
	})
	w2 := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "w2", identity.RoleWorker, []string{seed.Addr()} })

	var sums []uint64
	for _, n := range []*testNode{seed, w1, w2} {
		s := n.await(t, "all three", sees("r1", "w1", "w2"))
		sums = append(sums, s.Checksum())
		if got, _ := s.Get("r1"); got.ForwardAddr != "127.0.0.1:7420" || got.Role != identity.RoleRelay || got.GossipAddr != seed.Addr() {
			t.Errorf("%s sees r1 as %+v", n.ID(), got)
		}
		if got, _ := s.Get("w1"); got.Datacenter != "ams1" {
			t.Errorf("%s sees w1 as %+v", n.ID(), got)
		}
		if len(s.WithRole(identity.RoleWorker)) != 2 || s.Self().ID != n.ID() {
			t.Errorf("%s: workers %v, self %v", n.ID(), s.WithRole(identity.RoleWorker), s.Self())
		}
	}
	if sums[0] != sums[1] || sums[1] != sums[2] {
		t.Errorf("checksums %x differ", sums)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w1.WaitReady(ctx); err != nil {
		t.Error(err)
	}
}

func TestADrainIsSeenByAllMembersUntilItEnds(t *testing.T) {
	a := authority(t)
	for name, secure := range map[string]func(*Config){"signed": func(c *Config) { certified(t, a, c, nil) }, "without certificates": func(*Config) {}} {
		t.Run(name, func(t *testing.T) {
			r1 := start(t, func(c *Config) { c.ID = "r1"; secure(c) })
			w1 := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{r1.Addr()}; secure(c) })
			for _, n := range []*testNode{r1, w1} {
				n.await(t, "both", sees("r1", "w1"))
			}
			for _, on := range []bool{true, false, true} {
				r1.SetDraining(on)
				for _, n := range []*testNode{r1, w1} {
					s := n.await(t, fmt.Sprintf("draining %v", on), func(s *Snapshot) bool {
						m, _ := s.Get("r1")
						return m.Draining == on
					})
					if w, _ := s.Get("w1"); w.Draining {
						t.Errorf("%s takes w1 for drained", n.ID())
					}
				}
			}
			startPrepared(t, func(c *Config) { c.ID, c.Role, c.Seeds = "g1", identity.RoleGate, []string{r1.Addr()}; secure(c) }, func(n *Node) error {
				n.SetDraining(true)
				return nil
			})
			r1.await(t, "a gate that was drained before its start", func(s *Snapshot) bool { m, _ := s.Get("g1"); return m.Draining })
		})
	}
}

// A relay that believes for a moment that it is alone opens its ingress and knows no
// service.
func TestAnObserverIsAMemberThatAnswersNothing(t *testing.T) {
	observing := Config{Cluster: "test", Environment: "ci", ID: "o1", Role: identity.RoleObserver, BindAddr: "127.0.0.1:0", ForwardAddr: "127.0.0.1:7420"}
	if _, err := New(observing); err == nil || !strings.Contains(err.Error(), "an observer answers nothing") {
		t.Errorf("an observer with a forward address: %v", err)
	}
	relay := start(t, func(c *Config) { c.ID = "r1" })
	o := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "o1", identity.RoleObserver, []string{relay.Addr()} })
	for _, n := range []*testNode{relay, o} {
		s := n.await(t, "both", sees("r1", "o1"))
		if got := s.WithRole(identity.RoleObserver); len(got) != 1 || len(s.WithRole(identity.RoleRelay)) != 1 {
			t.Errorf("%s sees %v", n.ID(), s.Members())
		}
		if got := testutil.ToFloat64(n.metrics.members.WithLabelValues("observer")); got != 1 {
			t.Errorf("%s counts %v observers", n.ID(), got)
		}
	}
}

func TestAMemberThatReachedAnotherIsJoinedWhenASnapshotShowsIt(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1" })
	for i := range 10 {
		n := start(t, func(c *Config) { c.ID, c.Seeds = fmt.Sprintf("r%d", i+2), []string{seed.Addr()} })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := n.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		s, status := n.Snapshot(), n.Status()
		if len(s.Members()) < 2 || status.Version == 0 || status.Version > s.Version() {
			t.Errorf("%s is joined as of snapshot %d, and sees %d members in snapshot %d", n.ID(), status.Version, len(s.Members()), s.Version())
		}
		cancel()
	}
}

func TestAForeignClusterIsRefusedOnBothSidesAndNeverSeen(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1" })
	foreign := start(t, func(c *Config) {
		c.Cluster, c.ID, c.Role, c.Seeds = "prod", "w1", identity.RoleWorker, []string{seed.Addr()}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for foreign.Status().Err == nil && ctx.Err() == nil {
		foreign.waitForAttempt(ctx)
	}
	want := fmt.Sprintf(`cluster mismatch: ours "prod", theirs "test" (r1, %s): give both the same --cluster, or correct --join`, seed.Addr())
	if err := foreign.Status().Err; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("joiner's error is %v, want %s", err, want)
	}
	procs.Await(t, "the seed logs and counts the refused member", func() bool { // after it has answered
		return strings.Contains(seed.log.String(), `cluster mismatch: ours \"test\", theirs \"prod\" (`) && strings.Contains(seed.log.String(), "direction=inbound") &&
			testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, fieldCluster)) >= 1
	})
	// A member of our own cluster that joins afterwards is seen, so what the seed
	// shows then is not merely late.
	start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{seed.Addr()} })
	seed.await(t, "its own kind only", sees("r1", "r2"))
	if s := foreign.Snapshot(); !sees("w1")(s) {
		t.Errorf("the foreigner sees %v", s.Members())
	}
}

// waitForAttempt returns after the node tried to join once more.
func (n *testNode) waitForAttempt(ctx context.Context) {
	c, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_ = n.WaitReady(c)
}

func TestARestartWithTheSameIDAndANewAddressReplacesTheOldInstanceImmediately(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1" })
	first := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{seed.Addr()} })
	old, _ := seed.await(t, "r2", sees("r1", "r2")).Get("r2")
	_ = first.Close() // a crash: it does not leave

	second := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{seed.Addr()} })
	seed.await(t, "the new instance", func(s *Snapshot) bool {
		m, ok := s.Get("r2")
		return ok && m.Epoch > old.Epoch && m.GossipAddr == second.Addr()
	})
}

func TestALeaveIsDistinguishedFromACrash(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1" })
	leaver := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{seed.Addr()} })
	seed.await(t, "r2", sees("r1", "r2"))
	leaver.await(t, "r1", sees("r1", "r2"))
	if err := leaver.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	seed.await(t, "r2 gone", sees("r1"))
	leaver.await(t, "itself, leaving", func(s *Snapshot) bool { return s.Self().Leaving })
	if n := testutil.ToFloat64(leaver.metrics.events.WithLabelValues("failed")); n != 0 {
		t.Error("the leaver takes its own leave for a failure")
	}
	if n := testutil.ToFloat64(seed.metrics.events.WithLabelValues("left")); n != 1 {
		t.Errorf("counted %v leaves and %v failures", n, testutil.ToFloat64(seed.metrics.events.WithLabelValues("failed")))
	}
}

func TestASecondProcessWithOurIDIsReported(t *testing.T) {
	first := start(t, func(c *Config) { c.ID = "r1" })
	start(t, func(c *Config) {
		c.ID, c.Seeds = "r1", []string{first.Addr()}
		c.clock = func() time.Time { return time.Now().Add(time.Second) } // never the same millisecond
	})
	first.await(t, "the other r1", func(s *Snapshot) bool { return s.Self().GossipAddr != first.Addr() })
	if n := first.Status().DuplicatesSeen; n != 1 {
		t.Errorf("counted %v", n)
	}
	if !strings.Contains(first.log.String(), "give each process its own --id") {
		t.Errorf("the log does not say so:\n%s", first.log)
	}
}

// Operators read the log of one of the two, and do not know which. A third member logs
// who they are, for as long as both live.
func TestBothProcessesThatShareAnIDLogTheAddressOfTheOther(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "seed" })
	older := start(t, func(c *Config) { c.ID, c.Seeds = "r1", []string{seed.Addr()} })
	seed.await(t, "r1", sees("r1", "seed"))
	newer := start(t, func(c *Config) {
		c.ID, c.Seeds = "r1", []string{seed.Addr()}
		c.clock = func() time.Time { return time.Now().Add(time.Second) } // never the same millisecond
	})
	older.await(t, "the other r1", func(s *Snapshot) bool { return s.Self().GossipAddr == newer.Addr() })
	procs.Await(t, "both logs name the other", func() bool {
		return strings.Contains(older.log.String(), "other="+newer.Addr()) && strings.Contains(newer.log.String(), "other="+older.Addr())
	})
	want := Duplicate{ID: "r1", Addr: newer.Addr(), Other: older.Addr()}
	for _, n := range []*testNode{seed, older, newer} {
		procs.Await(t, "both are named", func() bool {
			found := n.Duplicates(t.Context())
			return len(found) == 1 && found[0] == want
		})
	}
	for _, n := range []*testNode{older, newer} {
		if addr := n.Status().DuplicateAddr; addr == "" || addr == n.Addr() {
			t.Errorf("%s has the duplicate %q", n.Addr(), addr)
		}
	}
	if err := older.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = older.Close()
	procs.Await(t, "one of them is gone", func() bool {
		return newer.Status().DuplicateAddr == "" && len(seed.Duplicates(t.Context())) == 0
	})
}

// A process that starts again at another address finds traces of its last life, and
// these are no second process.
func TestTheLastLifeOfAProcessIsNoDuplicate(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "seed" })
	first := start(t, func(c *Config) { c.ID, c.Seeds = "r1", []string{seed.Addr()} })
	seed.await(t, "r1", sees("r1", "seed"))
	_ = first.Close() // a crash: it does not leave
	out := &logtest.Log{}
	second := start(t, func(c *Config) {
		c.ID, c.Seeds = "r1", []string{seed.Addr()}
		c.clock = func() time.Time { return time.Now().Add(time.Second) }
		c.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	second.await(t, "the seed", sees("r1", "seed"))
	procs.Await(t, "the last life was asked", func() bool { return strings.Contains(out.String(), "an earlier life of this node does not answer") })
	if found := second.Duplicates(t.Context()); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	if n := second.Status().DuplicatesSeen; n != 0 {
		t.Errorf("counted %v", n)
	}
}

func TestASplitClusterGrowsTogetherAgain(t *testing.T) {
	// Two nodes that know each other only by a seed that was down when they
	// started: memberlist would never try again.
	port := procs.FreeAddr(t)
	a := start(t, func(c *Config) { c.ID, c.Seeds, c.RejoinInterval = "a", []string{port}, 100*time.Millisecond })
	start(t, func(c *Config) { c.ID, c.Seeds = "b", []string{a.Addr()} })
	a.await(t, "b", sees("a", "b"))
	start(t, func(c *Config) { c.ID, c.BindAddr = "late", port })
	a.await(t, "the seed that came late", sees("a", "b", "late"))
}

// The longest names and a key leave the least room in a packet.
func TestABroadcastReachesTheOthersAndAnOversizedOneIsRefused(t *testing.T) {
	heard := make(chan string, 1)
	keyring := func() *Keyring {
		k, err := NewKeyring(testKey(1))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	cluster, environment, longest := strings.Repeat("c", 63), strings.Repeat("e", 63), strings.Repeat("x", maxBroadcast)
	a, err := New(Config{Cluster: cluster, Environment: environment, ID: "a", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", Keyring: keyring()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.HandleGossip(firstTopic, func(b []byte) { heard <- string(b) })
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := start(t, func(c *Config) {
		c.ID, c.Seeds, c.Cluster, c.Environment, c.Keyring = "b", []string{a.Addr()}, cluster, environment, keyring()
	})
	b.await(t, "a", sees("a", "b"))
	if err := b.Broadcast(firstTopic, "b", []byte(longest)); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-heard:
		if got != longest {
			t.Fatalf("heard %d bytes, want %d", len(got), len(longest))
		}
	case <-time.After(patience):
		t.Fatal("nothing heard")
	}
	if err := b.Broadcast(firstTopic, "b", make([]byte, maxBroadcast+1)); err == nil {
		t.Fatal("a broadcast that can never be sent was accepted")
	}
}

func TestAStreamReachesTheMemberItNames(t *testing.T) {
	served := make(chan Peer, 1)
	a, err := New(Config{Cluster: "test", Environment: "ci", ID: "a", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.HandleStream(protocolSync, func(_ context.Context, p Peer, conn net.Conn) {
		_, _ = conn.Write([]byte("hi"))
		served <- p
	})
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "b", identity.RoleWorker, []string{a.Addr()} })
	b.await(t, "a", sees("a", "b"))
	conn, err := b.OpenStream(t.Context(), "a", protocolSync)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 2)
	if _, err := conn.Read(buf); err != nil || string(buf) != "hi" {
		t.Fatalf("read %q, %v", buf, err)
	}
	if p := <-served; p.ID != "b" || p.Role != identity.RoleWorker || p.Epoch != b.Epoch() {
		t.Fatalf("served %+v", p)
	}
	if _, err := b.OpenStream(t.Context(), "absent", protocolSync); err == nil {
		t.Fatal("a stream to an unknown member was opened")
	}
	(&testNode{Node: a, log: &logtest.Log{}}).await(t, "b", sees("a", "b"))
	if _, err := a.OpenStream(t.Context(), "b", protocolSync); err == nil || !strings.Contains(err.Error(), "protocol mismatch") {
		t.Fatalf("b serves no such protocol, yet: %v", err)
	}
}

func TestGarbageOnBothSocketsIsCountedAndChangesNothing(t *testing.T) {
	n := start(t, func(c *Config) { c.ID = "r1" })
	peer := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{n.Addr()} })
	n.await(t, "r2", sees("r1", "r2"))

	udp, err := net.Dial("udp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	random := rand.NewChaCha8([32]byte{1})
	packet := make([]byte, 400)
	for i := range 500 {
		_, _ = random.Read(packet)
		switch i % 3 {
		case 1: // behind our own label
			copy(packet, gossip.LabelHeader("test/ci"))
			copy(packet[2:], "test/ci")
		case 2: // a user message of an unknown topic
			copy(packet, "\xf4\x07test/ci\x08\x01\xfe")
		}
		_, _ = udp.Write(packet[:1+i%len(packet)])
	}
	for i := range 20 {
		conn, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = random.Read(packet)
		if i%2 == 0 {
			copy(packet, "GET / HTTP/1.1\r\n\r\n")
		}
		_, _ = conn.Write(packet)
		_, _ = conn.Read(packet) // until the node hangs up
		_ = conn.Close()
	}
	counted := func(what string, c prometheus.Counter, least float64) {
		t.Helper()
		procs.Await(t, what, func() bool { return testutil.ToFloat64(c) >= least })
	}
	counted("malformed streams", n.metrics.refusals.WithLabelValues(inbound, fieldMalformed), 20)
	counted("packets without our label", n.metrics.dropped.WithLabelValues("label"), 1)
	// It still gossips: news of a third member passes through it.
	start(t, func(c *Config) { c.ID, c.Seeds = "r3", []string{n.Addr()} })
	peer.await(t, "r3", sees("r1", "r2", "r3"))
}

func TestAllMistakesAreReportedInOneError(t *testing.T) {
	_, err := New(Config{Environment: "a b", Role: "client", BindAddr: "0.0.0.0:7400", AdvertiseAddr: "host:1", Seeds: []string{":1"}, LeaveTimeout: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"cluster is required", `environment "a b"`, "id is required", `role "client"`, `advertise address "host:1"`, `seed ":1"`, "leave timeout -1ns"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
	if _, err := New(Config{Cluster: "c", Environment: "e", ID: "i", Role: identity.RoleRelay, BindAddr: "0.0.0.0:0"}); err == nil || !strings.Contains(err.Error(), "listens on every interface") {
		t.Errorf("an unroutable advertise address was accepted: %v", err)
	}
	if _, err := New(Config{Cluster: "c", Environment: "e", ID: "i", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", Version: strings.Repeat("v", 600)}); err == nil || !strings.Contains(err.Error(), "shorten version") {
		t.Errorf("metadata that cannot fit was accepted: %v", err)
	}
}

func TestACloseDuringALeaveCutsItShort(t *testing.T) {
	t.Parallel()
	a := start(t, func(c *Config) { c.ID = "a" })
	start(t, func(c *Config) { c.ID, c.Seeds = "b", []string{a.Addr()} })
	a.await(t, "both", sees("a", "b"))
	left := make(chan error, 1)
	go func() { left <- a.Leave(context.Background()) }()
	procs.Await(t, "the node leaves", a.leaving.Load)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

func TestANodeMayBeMadeAgainWithTheSameRegisterer(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := Config{Cluster: "c", Environment: "e", ID: "i", Role: identity.RoleRelay, BindAddr: taken.Addr().String(), Registerer: prometheus.NewRegistry()}
	if _, err := New(cfg); err == nil {
		t.Fatal("the address is taken")
	}
	cfg.BindAddr = "127.0.0.1:0"
	for range 2 {
		n, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "registration") {
			t.Errorf("two nodes have one registerer: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheLifecycleForgivesEveryOrder(t *testing.T) {
	n, err := New(Config{Cluster: "c", Environment: "e", ID: "i", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if n.Snapshot() != nil || n.Leave(t.Context()) != nil || n.Close() != nil || n.Close() != nil {
		t.Fatal("a node that never started does not go quietly")
	}
	if err := n.Start(t.Context()); err == nil {
		t.Fatal("a closed node started")
	}
}
