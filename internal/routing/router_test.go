package routing_test

import (
	"context"
	"flag"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for gossip far more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	// A probe of memberlist ends by itself within a second of the shutdown.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// patience bounds every wait; it is reached only when something is broken.
const patience = 30 * time.Second

// member is one gossiping process of a test, over real sockets. Every test has a cluster
// of its own: an address that one test gives back may be taken by another.
type member struct {
	*membership.Node
	catalogue *advertise.Catalogue
	crash     func()
}

func join(t *testing.T, id string, role identity.Role, seed *member, change ...func(*membership.Config)) *member {
	t.Helper()
	name := t.Name()
	cfg := membership.Config{Cluster: name[max(0, len(name)-63):], Environment: "ci", ID: id, Role: role, BindAddr: "127.0.0.1:0", ForwardAddr: "127.0.0.1:2"}
	if seed != nil {
		cfg.Seeds = []string{seed.Addr()}
	}
	for _, f := range change {
		f(&cfg)
	}
	node, err := membership.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine gossip loses a record now and then: do not wait 30 s for it.
	catalogue, err := advertise.New(advertise.Config{Gossip: node, Probe: true, Interval: time.Second, PublishInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { _ = catalogue.Run(ctx) })
	m := &member{Node: node, catalogue: catalogue, crash: sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = node.Close()
	})}
	t.Cleanup(m.crash)
	return m
}

func route(t *testing.T, self *member, change func(*routing.Config)) *routing.Router {
	t.Helper()
	cfg := routing.Config{
		Self: self.Config().ID, Role: identity.RoleRelay, Catalogue: self.catalogue,
		Selection: selection.DefaultConfig(), Links: routing.LinkConfig{DrainDelay: time.Millisecond}, Epoch: time.Now(),
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	change(&cfg)
	r, err := routing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// backend is a service that listens.
func backend(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func nodes(targets []*routing.Target) []string {
	var out []string
	for _, t := range targets {
		out = append(out, t.Node)
	}
	slices.Sort(out)
	return out
}

func TestARouteFollowsOffersAndKeepsWhatDidNotChange(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	r := route(t, self, func(*routing.Config) {})
	workers := map[string]*member{}
	for _, id := range []string{"w1", "w2"} {
		w := join(t, id, identity.RoleWorker, self)
		workers[id] = w
		weight := map[string]int{"w1": 20, "w2": 10}[id]
		if err := w.catalogue.Offer([]advertise.Service{{Name: "echo", Address: backend(t), Weight: int32(weight)}, {Name: "other", Address: backend(t)}}); err != nil {
			t.Fatal(err)
		}
	}
	find := func(name string) *routing.Service {
		s, ok := r.Service(name)
		if !ok {
			return &routing.Service{}
		}
		return s
	}
	has := func(name string, want ...string) func() bool {
		return func() bool {
			s, ok := r.Service(name)
			return ok && s.Route().Affine() && slices.Equal(nodes(s.Route().Range), want)
		}
	}
	procs.Await(t, "both workers of echo", has("echo", "w1", "w2"))
	procs.Await(t, "both workers of other", has("other", "w1", "w2"))
	procs.Await(t, "settled", r.Settled)
	procs.Await(t, "a warm connection to each worker", func() bool {
		for _, target := range find("echo").Route().Range {
			if target.Pool.Stats().Open == 0 {
				return false
			}
		}
		return true
	})
	echo, other := find("echo"), find("other")
	otherRoute, w1 := other.Route(), echo.Route().Range[slices.IndexFunc(echo.Route().Range, func(t *routing.Target) bool { return t.Node == "w1" })]
	if math.Abs(w1.Weight-20./30) > 1e-6 {
		t.Errorf("w1 has the weight %v, want 20 of 30", w1.Weight)
	}

	// w2 changes what it offers: echo only, elsewhere.
	if err := workers["w2"].catalogue.Offer([]advertise.Service{{Name: "echo", Address: backend(t), State: advertise.Draining}, {Name: "third", Address: backend(t)}}); err != nil {
		t.Fatal(err)
	}
	procs.Await(t, "w2 to take no new requests of echo", has("echo", "w1"))
	procs.Await(t, "w2 to be gone from other", has("other", "w1"))
	if find("echo") != echo {
		t.Error("the service is a new one: its statistics are lost")
	}
	if got := echo.Route().Range[0]; got.Pool != w1.Pool {
		t.Error("the connections to w1 were opened anew")
	}
	if len(echo.Route().Endpoints) != 2 {
		t.Error("a draining endpoint is not shown any more")
	}
	if otherRoute == other.Route() {
		t.Error("the route of other did not change")
	}
	before := echo.Route()
	if err := workers["w1"].catalogue.Offer([]advertise.Service{{Name: "echo", Address: w1.Address, Weight: 20}}); err != nil {
		t.Fatal(err)
	}
	procs.Await(t, "other to be empty", func() bool { return len(other.Route().Range) == 0 })
	if echo.Route() != before {
		t.Error("a change of another service computed echo's route anew")
	}
}

func TestAServiceWhoseWorkersAreGoneIsStillKnown(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	r := route(t, self, func(*routing.Config) {})
	w := join(t, "w1", identity.RoleWorker, self)
	if err := w.catalogue.Offer([]advertise.Service{{Name: "echo", Address: backend(t)}}); err != nil {
		t.Fatal(err)
	}
	procs.Await(t, "echo", func() bool { s, ok := r.Service("echo"); return ok && len(s.Route().Range) == 1 })
	w.catalogue.Offer(nil)
	procs.Await(t, "no endpoint", func() bool { s, ok := r.Service("echo"); return ok && s.Route().Plan == nil })
	if _, ok := r.Service("absent"); ok {
		t.Error("a service that was never offered is known")
	}
	if all := r.Services(); len(all) != 1 || all[0].Name != "echo" {
		t.Errorf("services %v", all)
	}
}

func TestAGateForwardsToTheAffineRelays(t *testing.T) {
	relay := join(t, "r1", identity.RoleRelay, nil)
	gate := join(t, "g1", identity.RoleGate, relay)
	r := route(t, gate, func(c *routing.Config) { c.Role = identity.RoleGate })
	w := join(t, "w1", identity.RoleWorker, relay)
	if err := w.catalogue.Offer([]advertise.Service{{Name: "echo", Address: backend(t)}}); err != nil {
		t.Fatal(err)
	}
	procs.Await(t, "the relay to forward to", func() bool {
		s, ok := r.Service("echo")
		return ok && !s.Route().Affine() && slices.Equal(relayIDs(s.Route().Forward), []string{"r1"}) && len(s.Route().Range) == 0
	})
}

func TestAnEndpointThatCannotBeCarriedToCostsNoOther(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	r := route(t, self, func(*routing.Config) {})
	for id, protocol := range map[string]advertise.Protocol{"w1": advertise.HTTP1, "w2": advertise.TCP} {
		w := join(t, id, identity.RoleWorker, self)
		if err := w.catalogue.Offer([]advertise.Service{{Name: "echo", Address: backend(t), Protocol: protocol}}); err != nil {
			t.Fatal(err)
		}
	}
	procs.Await(t, "w1 alone in the range of two endpoints", func() bool {
		s, ok := r.Service("echo")
		return ok && len(s.Route().Endpoints) == 2 && slices.Equal(nodes(s.Route().Range), []string{"w1"})
	})
}

func TestMostEndpointsDecideWhetherAServiceTakesSessions(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	r := route(t, self, func(*routing.Config) {})
	offers := map[string][]advertise.Protocol{ // by worker
		"all": {advertise.TCP, advertise.TCP, advertise.TCP}, "most": {advertise.TCP, advertise.HTTP1, advertise.TCP}, "few": {advertise.HTTP1, advertise.TCP, advertise.H2C},
	}
	for i, id := range []string{"w1", "w2", "w3"} {
		var services []advertise.Service
		for name, protocols := range offers {
			services = append(services, advertise.Service{Name: name, Address: backend(t), Protocol: protocols[i]})
		}
		if err := join(t, id, identity.RoleWorker, self).catalogue.Offer(services); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{"all": {"w1", "w2", "w3"}, "most": {"w1", "w3"}, "few": {"w1", "w3"}} {
		procs.Await(t, "the endpoints of one kind of "+name, func() bool {
			s, ok := r.Service(name)
			if !ok || len(s.Route().Endpoints) != 3 {
				return false
			}
			now := nodes(s.Route().Range)
			slices.Sort(now)
			return s.Route().TCP == (name != "few") && slices.Equal(now, want)
		})
	}
}

func TestAConnectionThatIsLostIsOpenedAgain(t *testing.T) {
	self := join(t, "r1", identity.RoleRelay, nil)
	r := route(t, self, func(c *routing.Config) { c.AuditInterval = 10 * time.Millisecond })
	service := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(service.Close)
	w := join(t, "w1", identity.RoleWorker, self)
	if err := w.catalogue.Offer([]advertise.Service{{Name: "echo", Address: service.Listener.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	stats := func() (open, dials int) {
		s, ok := r.Service("echo")
		if !ok || len(s.Route().Range) == 0 {
			return 0, 0
		}
		st := s.Route().Range[0].Pool.Stats()
		return st.Open, int(st.Dials)
	}
	procs.Await(t, "the first connection", func() bool { open, _ := stats(); return open == 1 })
	s, _ := r.Service("echo")
	answer := httptest.NewRecorder()
	request := httptest.NewRequest("GET", "/", nil)
	request.Close = true // the service hangs up after this one
	request.Header.Set("Connection", "close")
	service.CloseClientConnections()
	_, _ = s.Route().Range[0].Pool.Carry(answer, request, &upstream.Options{}) // uses the closed connection
	procs.Await(t, "a second connection", func() bool { open, dials := stats(); return open == 1 && dials >= 2 })
}

func TestMinimumsBelowTheirBoundsAreRefused(t *testing.T) {
	_, err := routing.New(routing.Config{Plans: routing.PlanSettings{PlanConfig: affinity.PlanConfig{Minimums: affinity.Minimums{PeersPerWorker: 2, PeersPerRelay: 1}}}, Selection: selection.DefaultConfig()})
	if err == nil {
		t.Fatal("accepted")
	}
}

// views is a catalogue that shows what it is given.
type views chan *advertise.View

func (v views) Watch(context.Context) <-chan *advertise.View { return v }

// What others keep of a service they can give back when its name is forgotten.
func TestAServiceThatIsForgottenIsGoneAndReported(t *testing.T) {
	t.Parallel()
	full, empty := join(t, "r1", identity.RoleRelay, nil), join(t, "r1", identity.RoleRelay, nil)
	offer(t, join(t, "w1", identity.RoleWorker, full), advertise.Service{Name: "echo", Address: backend(t)})
	show, vanished := make(views), make(chan *routing.Service, 1)
	router := route(t, full, func(c *routing.Config) {
		c.Catalogue = show
		c.Vanished = func(s *routing.Service) { vanished <- s }
	})
	procs.Await(t, "the service and both views", func() bool {
		return slices.Contains(slices.Collect(full.catalogue.View().Services()), "echo") && empty.catalogue.View().Members() != nil
	})
	show <- full.catalogue.View()
	var echo *routing.Service
	procs.Await(t, "a route", func() (known bool) {
		echo, known = router.Service("echo")
		return known
	})
	if echo.Gone() {
		t.Error("a service is gone that has just come")
	}
	show <- empty.catalogue.View()
	select {
	case s := <-vanished:
		if _, known := router.Service("echo"); s != echo || known || !s.Gone() {
			t.Errorf("told of %p, had %p; known: %v; gone: %v", s, echo, known, s.Gone())
		}
	case <-time.After(patience):
		t.Error("told of nothing")
	}
}
