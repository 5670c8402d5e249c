package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// quietGossip is the gossip of a member that hears only what a benchmark delivers.
type quietGossip struct {
	members *membership.Snapshot
	take    func(ctx context.Context, record []byte) (string, uint64, uint64, error)
}

func (g *quietGossip) Snapshot() *membership.Snapshot { return g.members }

func (g *quietGossip) Watch(context.Context) <-chan *membership.Snapshot {
	out := make(chan *membership.Snapshot, 1)
	out <- g.members
	return out
}

func (g *quietGossip) HandleRecords(take func(context.Context, []byte) (string, uint64, uint64, error)) func(string, uint64, uint64) {
	g.take = take
	return func(string, uint64, uint64) {}
}

func (*quietGossip) HandleGossip(byte, func([]byte))                                       {}
func (*quietGossip) HandleStream(string, func(context.Context, membership.Peer, net.Conn)) {}
func (*quietGossip) Broadcast(byte, string, []byte) error                                  { return nil }
func (*quietGossip) Leave(context.Context) error                                           { return nil }
func (*quietGossip) Sign(membership.Statement, []byte) []byte                              { return nil }
func (*quietGossip) Verify(string, membership.Statement, []byte, []byte) error             { return nil }
func (*quietGossip) SignedNow([]byte) bool                                                 { return true }
func (*quietGossip) OpenStream(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no member answers")
}

// quietFleet is the catalogue of a member that hears only what a test states.
type quietFleet struct {
	*advertise.Catalogue
	tb     testing.TB
	gossip *quietGossip
}

func newQuietFleet(tb testing.TB, self string, members []membership.Member) *quietFleet {
	tb.Helper()
	f := &quietFleet{tb: tb, gossip: &quietGossip{members: membership.NewSnapshot(1, self, members)}}
	var err error
	if f.Catalogue, err = advertise.New(advertise.Config{Gossip: f.gossip, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			tb.Error(err)
		}
	})
	return f
}

// state takes the record of a worker.
func (f *quietFleet) state(worker string, sequence uint64, s advertise.Service) {
	f.tb.Helper()
	record := advertise.Record{NodeID: worker, Epoch: 1, Sequence: sequence, Services: []advertise.Service{s}}
	raw, err := record.Encode()
	if err != nil {
		f.tb.Fatal(err)
	}
	if _, _, _, err := f.gossip.take(f.tb.Context(), raw); err != nil {
		f.tb.Fatal(err)
	}
}

// view returns the first view for which done returns true.
func (f *quietFleet) view(done func(*advertise.View) bool) *advertise.View {
	f.tb.Helper()
	limit := time.After(time.Minute)
	views := f.Watch(f.tb.Context())
	for {
		select {
		case v := <-views:
			if done(v) {
				return v
			}
		case <-limit:
			f.tb.Fatal("the catalogue does not show the records")
		}
	}
}

// having reports whether a view has this many endpoints of the service that are as wanted.
func having(n int, service string, wanted func(*advertise.Endpoint) bool) func(*advertise.View) bool {
	return func(v *advertise.View) bool {
		found := 0
		for e := range v.Endpoints(service).All() {
			if wanted(e) {
				found++
			}
		}
		return found == n
	}
}

// BenchmarkOneChange is what one worker of a service of 20,000, whose weight changes, costs one of 300
// relays, from the view of the catalogue until the route can be picked from.
func BenchmarkOneChange(b *testing.B) {
	const relays, workers = 300, 20_000
	var members []membership.Member
	for i := range relays {
		members = append(members, membership.Member{ID: fmt.Sprintf("r%03d", i), Epoch: 1, Role: identity.RoleRelay,
			GossipAddr: fmt.Sprintf("10.1.%d.%d:7400", i/250, i%250), ForwardAddr: fmt.Sprintf("10.1.%d.%d:7402", i/250, i%250)})
	}
	for i := range workers {
		members = append(members, membership.Member{ID: fmt.Sprintf("w%05d", i), Epoch: 1, Role: identity.RoleWorker, GossipAddr: fmt.Sprintf("10.2.%d.%d:7400", i/250, i%250)})
	}
	f := newQuietFleet(b, "r000", members)
	state := func(worker int, sequence uint64) {
		f.state(fmt.Sprintf("w%05d", worker), sequence, advertise.Service{Name: "billing", Address: fmt.Sprintf("10.2.%d.%d:8080", worker/250, worker%250), Weight: int32(99 + sequence%2)})
	}
	for i := range workers {
		state(i, 1)
	}
	before := f.view(having(workers, "billing", func(*advertise.Endpoint) bool { return true }))
	state(workers/2, 2)
	after := f.view(func(v *advertise.View) bool { return v.Endpoints("billing") != before.Endpoints("billing") })

	r, err := New(Config{Self: "r000", Role: identity.RoleRelay, Catalogue: f, Selection: selection.DefaultConfig(), Epoch: time.Now(),
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	use := func(v *advertise.View) {
		r.view, r.snapshot = v, v.Members()
		if planned, _ := r.update(); !planned {
			b.Fatal("the route was not computed")
		}
	}
	use(before)
	if n := len((*r.services.Load())["billing"].Route().Range); n == 0 {
		b.Fatal("the relay has no range")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			use(after)
		} else {
			use(before)
		}
	}
}
