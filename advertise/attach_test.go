package advertise_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// A program that attaches needs no address for gossip, and is seen by the relays like one that
// gossips: with its services, with their changes, and when it leaves.
func TestAProgramThatAttachesOffersChangesAndLeavesWithoutGossip(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci"})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []string{"r1", "r2"} {
		if err := f.StartRelay(id, nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg := advertise.AdvertiserConfig{
		Cluster: "test", Environment: "ci", ID: "p1", Attach: []string{f.Relay("r1").PeerAddr()},
		Services:   []advertise.Service{{Name: "echo", Address: "127.0.0.1:9001", Secured: true}},
		DrainDelay: time.Millisecond,
	}
	certified := membership.Config{Role: "worker", Cluster: cfg.Cluster, Environment: cfg.Environment, ID: cfg.ID}
	if err := f.Equip(&certified); err != nil {
		t.Fatal(err)
	}
	cfg.Identity = certified.Identity
	a, err := advertise.NewAdvertiser(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()

	offered := func(what, want string) {
		t.Helper()
		for _, id := range []string{"r1", "r2"} {
			watching, done := context.WithTimeout(t.Context(), procs.Patience)
			got := "no view"
			for view := range f.Relay(id).Catalogue.Watch(watching) {
				got = ""
				if e, there := view.Endpoint("echo", "p1"); there {
					got = e.Address
				}
				if got == want {
					break
				}
			}
			done()
			if got != want {
				t.Fatalf("%s: %s has %q, want %q", what, id, got, want)
			}
		}
	}
	offered("at the start", "127.0.0.1:9001")
	if err := a.Set(advertise.Service{Name: "echo", Address: "127.0.0.1:9002", Secured: true}); err != nil {
		t.Fatal(err)
	}
	offered("after a change", "127.0.0.1:9002")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	offered("after it has left", "")
}

// A relay ends a session without a record after 10 s.
func TestAProgramThatAttachesIsAMemberBeforeItHasServices(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.StartRelay("r1", nil); err != nil {
		t.Fatal(err)
	}
	r, events := f.Relay("r1"), make(chan advertise.Event, 100)
	a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "test", Environment: "ci", ID: "p1", Attach: []string{r.PeerAddr()}, DrainDelay: time.Millisecond,
		OnEvent: func(e advertise.Event) { events <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	procs.Await(t, "the program is a member", func() bool {
		s := r.Fleet.Snapshot()
		if s == nil {
			return false
		}
		_, there := s.Get("p1")
		return there
	})
	if len(events) > 0 {
		t.Errorf("an event before it offers anything: %+v", <-events)
	}
	if err := a.Set(advertise.Service{Name: "echo", Address: "127.0.0.1:9001"}); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Kind != advertise.EventAdvertised {
		t.Errorf("%+v, want that its services are advertised", e)
	}
	procs.Await(t, "the service is offered", func() bool {
		_, there := r.Catalogue.View().Endpoint("echo", "p1")
		return there
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A service that is healthy soon after the start would be offered a publish interval later.
func TestTheFirstServicesOfAnAttachedWorkerDoNotWaitForItsEmptyRecord(t *testing.T) {
	client, err := session.NewClient(session.Config{Member: membership.Config{Cluster: "test", Environment: "ci", ID: "w1", Role: identity.RoleWorker}, Seeds: []string{"127.0.0.1:7420"}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		catalogue, err := advertise.New(advertise.Config{Gossip: client, PublishInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = catalogue.Run(ctx) })
		start := time.Now()
		for i, port := range []string{"1", "2"} {
			synctest.Wait()
			if err := catalogue.Offer([]advertise.Service{{Name: "echo", Address: "127.0.0.1:" + port}}); err != nil {
				t.Fatal(err)
			}
			if err := catalogue.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(start).Round(time.Minute); waited != time.Duration(i)*time.Hour {
				t.Errorf("offer %d is published after %v", i, waited)
			}
		}
		stop()
		running.Wait()
	})
}

// recording keeps what the catalogue of an attached worker publishes.
type recording struct {
	*session.Client
	mu     sync.Mutex
	newest []byte
}

func (r *recording) PublishRecord(raw []byte) {
	r.mu.Lock()
	r.newest = raw
	r.mu.Unlock()
	r.Client.PublishRecord(raw)
}

// signed reports whether the current certificate has signed the newest record. Its signature is the end.
func (r *recording) signed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.SignedNow(r.newest[len(r.newest)-membership.MaxSignature:])
}

// Until then no session begins with that certificate: after the end of the one before the worker would
// be away.
func TestANewCertificateSignsTheRecordOfAnAttachedWorkerImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		claims := identity.Claims{Role: identity.RoleWorker, Cluster: "test", Environment: "ci", Node: "w1"}
		source, renew := renewable(t, authority, claims, time.Hour)
		client, err := session.NewClient(session.Config{
			Member: membership.Config{Cluster: "test", Environment: "ci", ID: "w1", Role: identity.RoleWorker, Identity: source}, Seeds: []string{"127.0.0.1:1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		gossip := &recording{Client: client}
		catalogue, err := advertise.New(advertise.Config{Gossip: gossip})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		if err := client.Start(ctx); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { _ = catalogue.Run(ctx) })
		time.Sleep(6 * time.Second) // the loop of the catalogue turns every five
		if !gossip.signed() {
			t.Error("the first record is not signed")
		}
		renew()
		time.Sleep(time.Second)
		if !gossip.signed() {
			t.Error("the certificate before has signed the record")
		}
		stop()
		running.Wait()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAProgramAttachesOrGossips(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*advertise.AdvertiserConfig)
		want   string
	}{
		"both":             {func(c *advertise.AdvertiserConfig) { c.Seeds = []string{"127.0.0.1"} }, "it attaches and gossips"},
		"an address":       {func(c *advertise.AdvertiserConfig) { c.BindAddr = "127.0.0.1:0" }, "it attaches and gossips"},
		"in clear text":    {func(c *advertise.AdvertiserConfig) { c.Attach = []string{"10.0.0.1"} }, "would be in clear text"},
		"a seed":           {func(c *advertise.AdvertiserConfig) { c.Attach = []string{"127.0.0.1:port"} }, "port"},
		"a name":           {func(c *advertise.AdvertiserConfig) { c.ID = "a b" }, "id"},
		"neither":          {func(c *advertise.AdvertiserConfig) { c.Attach, c.BindAddr = nil, "127.0.0.1:0" }, "no seeds"},
		"allowed as it is": {func(*advertise.AdvertiserConfig) {}, ""},
	} {
		cfg := advertise.AdvertiserConfig{
			Cluster: "test", Environment: "ci", ID: "p1", Attach: []string{"127.0.0.1:7420"},
			Services: []advertise.Service{{Name: "echo", Address: "127.0.0.1:9001"}},
		}
		c.change(&cfg)
		a, err := advertise.NewAdvertiser(cfg)
		if err == nil {
			_ = a.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
