package advertise

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// seed is a relay on real sockets.
type seed struct {
	node      *membership.Node
	catalogue *Catalogue
	stop      func()
}

func startSeed(t *testing.T, change func(*membership.Config)) *seed {
	t.Helper()
	cfg := membership.Config{Cluster: "prod", Environment: "eu", ID: "relay-1", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0"}
	if change != nil {
		change(&cfg)
	}
	node, err := membership.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := New(Config{Gossip: node})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = catalogue.Run(ctx) }()
	s := &seed{node, catalogue, sync.OnceFunc(func() { cancel(); <-ended; _ = node.Close() })}
	t.Cleanup(s.stop)
	return s
}

// sees waits until the seed's view is as wanted.
func (s *seed) sees(t *testing.T, what string, want func(*View) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for v := range s.catalogue.Watch(ctx) {
		if want(v) {
			return
		}
	}
	t.Fatalf("the seed never saw %s", what)
}

// service is an Advertiser that runs, and the events that it reports.
type service struct {
	*Advertiser
	t      *testing.T
	events chan Event
	stop   func() // and wait
}

func startService(t *testing.T, change func(*AdvertiserConfig)) *service {
	t.Helper()
	s := &service{t: t, events: make(chan Event, 64)}
	cfg := AdvertiserConfig{
		Cluster: "prod", Environment: "eu", ID: "echo-1", BindAddr: "127.0.0.1:0", Services: echo(8080),
		DrainDelay: 100 * time.Millisecond, OnEvent: func(e Event) { s.events <- e },
	}
	change(&cfg)
	var err error
	if s.Advertiser, err = NewAdvertiser(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(func() {
		_ = s.node.Close() // as a crash: a goodbye takes seconds, and one test is about it
		s.stop()
	})
	return s
}

// next waits for an event.
func (s *service) next() Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-time.After(30 * time.Second):
		s.t.Fatal("no event")
		return Event{}
	}
}

func (s *service) wants(kind EventKind) Event {
	s.t.Helper()
	e := s.next()
	if e.Kind != kind {
		s.t.Fatalf("%s (%v), want %s", e.Kind, e.Cause, kind)
	}
	return e
}

func TestAnAdvertiserOffersChangesDrainsAndOffersNothing(t *testing.T) {
	t.Parallel()
	relay := startSeed(t, nil)
	s := startService(t, func(c *AdvertiserConfig) {
		c.Seeds, c.Datacenter, c.Region = []string{relay.node.Addr()}, "dc-1", "eu-west"
	})
	s.wants(EventAdvertised)
	relay.sees(t, "the endpoint", func(v *View) bool {
		e, ok := v.Endpoint("echo", "echo-1")
		return ok && e.Address == "127.0.0.1:8080" && e.Datacenter == "dc-1" && e.Region == "eu-west"
	})
	for _, step := range []struct {
		name string
		do   func() error
		want func(*View) bool
	}{
		{"another port", func() error { return s.Set(echo(8081)...) }, func(v *View) bool {
			e, ok := v.Endpoint("echo", "echo-1")
			return ok && e.Address == "127.0.0.1:8081"
		}},
		{"draining", func() error { s.Drain(); return nil }, func(v *View) bool {
			e, ok := v.Endpoint("echo", "echo-1")
			return ok && e.State == Draining
		}},
		{"nothing", func() error { return s.Set() }, func(v *View) bool {
			return v.EndpointCount() == 0
		}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		s.wants(EventReadvertised)
		relay.sees(t, step.name, step.want)
	}
}

func TestSettingWhatIsOfferedAlreadyIsNoEvent(t *testing.T) {
	t.Parallel()
	relay := startSeed(t, nil)
	s := startService(t, func(c *AdvertiserConfig) { c.Seeds, c.Services = []string{relay.node.Addr()}, nil })
	for i, port := range []int{1, 1, 1, 2} { // the first is what it advertises, the last what it readvertises
		if err := s.Set(echo(port)...); err != nil {
			t.Fatal(err)
		}
		relay.sees(t, "the offer", func(v *View) bool {
			e, ok := v.Endpoint("echo", "echo-1")
			return ok && e.Address == echo(port)[0].Address
		})
		if i == 0 {
			s.wants(EventAdvertised) // changes before this event would be a part of it
		}
	}
	s.wants(EventReadvertised)
	s.stop()
	if len(s.events) > 0 {
		t.Errorf("one more event: %+v", <-s.events)
	}
}

func TestAnAdvertiserLeavesAndIsNotTakenToHaveFailed(t *testing.T) {
	t.Parallel()
	// A watcher that sleeps in the drain misses it.
	for repeats := 4; ; repeats-- {
		drained, slept := leaves(t)
		if !drained && slept > 200*time.Millisecond && repeats > 0 {
			continue
		}
		if !drained {
			t.Errorf("it was not seen draining; its watcher slept %v at most", slept)
		}
		return
	}
}

// leaves starts an advertiser and stops it. It returns whether a relay saw it draining, and the longest
// time in which the test did not watch that relay.
func leaves(t *testing.T) (drained bool, slept time.Duration) {
	t.Helper()
	relay := startSeed(t, nil)
	s := startService(t, func(c *AdvertiserConfig) { c.Seeds, c.DrainDelay = []string{relay.node.Addr()}, 500*time.Millisecond })
	s.wants(EventAdvertised)
	if err := s.Set(echo(8081)...); err != nil {
		t.Fatal(err)
	}
	s.wants(EventReadvertised) // from here it takes a second until it may publish again
	relay.sees(t, "the endpoint", func(v *View) bool { return v.EndpointCount() == 1 })
	views := relay.catalogue.Watch(t.Context())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	go s.stop()
	for last := time.Now(); ; {
		var v *View
		select {
		case v = <-views:
		case <-tick.C:
		}
		now := time.Now()
		slept, last = max(slept, now.Sub(last)), now
		if v == nil {
			continue
		}
		e, there := v.Endpoint("echo", "echo-1")
		m, _ := v.Members().Get("echo-1")
		drained = drained || there && e.State == Draining && !m.Leaving // its record announces this in time
		if !there {
			if d, _ := v.Members().Departed("echo-1"); d.Reason != membership.Left {
				t.Errorf("it went %q, want left", d.Reason)
			}
			return drained, slept
		}
	}
}

func TestASeedThatComesLaterIsFound(t *testing.T) {
	t.Parallel()
	addr := procs.FreeAddr(t)
	s := startService(t, func(c *AdvertiserConfig) { c.Seeds = []string{addr} })
	if e := s.wants(EventError); !e.WillRetry || e.Cause == nil || !strings.Contains(e.Cause.Error(), addr) {
		t.Errorf("%+v, want one that names %s and is retried", e, addr)
	}
	startSeed(t, func(c *membership.Config) { c.BindAddr = addr })
	for { // reasons may differ from attempt to attempt
		if e := s.next(); e.Kind == EventAdvertised {
			break
		} else if e.Kind != EventError {
			t.Fatalf("%+v before it advertised", e)
		}
	}
}

func TestASeedOfAnotherClusterIsAnEventThatNamesBoth(t *testing.T) {
	t.Parallel()
	relay := startSeed(t, func(c *membership.Config) { c.Cluster = "staging" })
	s := startService(t, func(c *AdvertiserConfig) { c.Seeds = []string{relay.node.Addr()} })
	e := s.wants(EventError)
	var refusal *membership.RefusalError
	if !errors.As(e.Cause, &refusal) || refusal.Ours != "prod" || refusal.Theirs != "staging" || refusal.Field != "cluster" || !e.WillRetry {
		t.Errorf("%+v, want a refusal for the cluster that names prod and staging", e)
	}
	s.stop()
	if relay.catalogue.View().EndpointCount() > 0 {
		t.Error("the other cluster sees the endpoint")
	}
}

func TestAnAdvertiserThatIsLeftAloneReportsItAndReadvertises(t *testing.T) {
	t.Parallel()
	relay := startSeed(t, nil)
	s := startService(t, func(c *AdvertiserConfig) { c.Seeds = []string{relay.node.Addr()} })
	s.wants(EventAdvertised)
	if err := relay.node.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	relay.stop()
	if e := s.wants(EventError); !errors.Is(e.Cause, ErrAlone) || !e.WillRetry {
		t.Errorf("%+v, want %v", e, ErrAlone)
	}
	next := startSeed(t, func(c *membership.Config) { c.ID, c.Seeds = "relay-2", []string{s.node.(*membership.Node).Addr()} })
	s.wants(EventReadvertised)
	next.sees(t, "the endpoint", func(v *View) bool { return v.EndpointCount() == 1 })
}

func TestAnAdvertiserWithCertificateAndKeysTalksToItsLikeOnly(t *testing.T) {
	t.Parallel()
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "prod", Environment: "eu", Node: node}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	keyring := func() *membership.Keyring {
		k, err := membership.NewKeyring(key)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	relay := startSeed(t, func(c *membership.Config) {
		c.Identity, c.Keyring = source(identity.RoleRelay, "relay-1"), keyring()
	})
	secured := startService(t, func(c *AdvertiserConfig) {
		c.Seeds, c.Identity, c.Keyring = []string{relay.node.Addr()}, source(identity.RoleWorker, "echo-1"), keyring()
	})
	secured.wants(EventAdvertised)
	plain := startService(t, func(c *AdvertiserConfig) { c.Seeds, c.ID = []string{relay.node.Addr()}, "echo-2" })
	plain.wants(EventError)

	named, err := authority.Source(identity.Claims{Role: identity.RoleWorker, Cluster: "prod", Environment: "eu", Node: "echo-3", Services: "other"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewAdvertiser(AdvertiserConfig{Cluster: "prod", Environment: "eu", ID: "echo-3", BindAddr: "127.0.0.1:0", Seeds: []string{relay.node.Addr()},
		Identity: named, Keyring: keyring(), Services: echo(1)})
	if err == nil || !strings.Contains(err.Error(), "service echo: the certificate of its worker is for other") {
		t.Errorf("an advertiser whose certificate is for another service: %v", err)
	}
}

func TestABadAdvertiserIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := NewAdvertiser(AdvertiserConfig{
		Cluster: "prod", ID: "not an id", BindAddr: "0.0.0.0:0", DrainDelay: -1,
		Services: []Service{
			{Name: "a b", Address: "127.0.0.1:80"},
			{Name: "nowhere", Address: "127.0.0.1:0"},
			{Name: "everywhere", Address: "[::]:80"},
		},
	})
	for _, want := range []string{
		`advertiser "not an id"`, "environment is required", `id "not an id"`, "listens on every interface", "no seeds", "nothing protects it", "drain delay -1ns",
		`service name "a b"`, `service "nowhere": address "127.0.0.1:0"`, `service "everywhere": address "[::]:80"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %s, got:\n%v", want, err)
		}
	}
	good := AdvertiserConfig{Cluster: "prod", Environment: "eu", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{"127.0.0.1:7400"}}
	for name, change := range map[string]func(*AdvertiserConfig){
		"seed":              func(c *AdvertiserConfig) { c.Seeds = append(c.Seeds, "[::1") },
		"other hosts":       func(c *AdvertiserConfig) { c.BindAddr, c.AdvertiseAddr = "0.0.0.0:0", "127.0.0.1:1" },
		`"echo" twice`:      func(c *AdvertiserConfig) { c.Services = append(echo(1), echo(2)...) },
		"advertise address": func(c *AdvertiserConfig) { c.AdvertiseAddr = "127.0.0.1:0" },
		`service "echo": selection: invalid strategy: "nope" (must be one of: p2c, stable, `: func(c *AdvertiserConfig) {
			c.Services = echo(1)
			c.Services[0].Selection = "nope"
		},
		`parameter vnodes of strategy slots must be in 1..64, not 0`: func(c *AdvertiserConfig) {
			c.Services = echo(1)
			c.Services[0].Selection = "slots;vnodes=0"
		},
		`service "echo": "retries" is no part of a policy: want request-timeout, `: func(c *AdvertiserConfig) {
			c.Services = echo(1)
			c.Services[0].Policy = "retries=3"
		},
	} {
		c := good
		change(&c)
		if _, err := NewAdvertiser(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error about %s, got: %v", name, err)
		}
	}
	said := good
	said.BindAddr, said.AdvertiseAddr, said.Insecure = "0.0.0.0:0", "127.0.0.1:1", true
	a, err := NewAdvertiser(said)
	if err != nil {
		t.Fatalf("insecure said out loud: %v", err)
	}
	if err := a.Set(Service{Name: "x", Address: "0.0.0.0:80"}, Service{Name: "y"}); err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), `"y"`) {
		t.Errorf("Set says %v, want both faults", err)
	}
	if err := a.Set(Service{Name: "x", Address: "127.0.0.1:80", Selection: "best"}); err == nil || !strings.Contains(err.Error(), `"best" (must be one of: p2c`) {
		t.Errorf("Set of an unknown strategy: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnAdvertiserRunsOnceAndReportsWhenItCannot(t *testing.T) {
	t.Parallel()
	s := startService(t, func(c *AdvertiserConfig) { c.Seeds = []string{"127.0.0.1:1"} })
	s.wants(EventError)
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a second Run: %v", err)
	}
	s.stop()

	var events []Event
	closed, err := NewAdvertiser(AdvertiserConfig{
		Cluster: "prod", Environment: "eu", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{"127.0.0.1:1"},
		OnEvent: func(e Event) { events = append(events, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	err = closed.Run(t.Context())
	if err == nil || len(events) != 1 || events[0].WillRetry || !errors.Is(err, events[0].Cause) {
		t.Errorf("after Close Run returned %v and told of %+v; want one error that is not retried", err, events)
	}
}

func TestAnObserverOffersNothingAndTheErrorNamesTheRemedy(t *testing.T) {
	node, err := membership.New(membership.Config{Cluster: "prod", Environment: "eu", ID: "o1", Role: identity.RoleObserver, BindAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	catalogue, err := New(Config{Gossip: node})
	if err != nil {
		t.Fatal(err)
	}
	err = catalogue.Offer([]Service{{Name: "echo", Address: "127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), `"o1" has the role observer`) || !strings.Contains(err.Error(), "give the node the role worker") {
		t.Error(err)
	}
}
