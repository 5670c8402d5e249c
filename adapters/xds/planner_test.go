package xds

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/membership"
)

// fakeWorld is what the planner knows, as a test sets it.
type fakeWorld struct {
	snapshot  *membership.Snapshot
	unsettled bool
	of        map[string][]*advertise.Endpoint
}

func (w *fakeWorld) Members() *membership.Snapshot { return w.snapshot }
func (w *fakeWorld) Settled() bool                 { return !w.unsettled }
func (w *fakeWorld) offers(service string) ([]*advertise.Endpoint, any) {
	list := w.of[service]
	if len(list) == 0 {
		return nil, nil
	}
	return slices.Clone(list), &list[0]
}

// rig is a control plane without sockets in a synctest bubble.
type rig struct {
	t       *testing.T
	ctx     context.Context
	clients *clients
	server  server.Server
	worlds  chan world
	joined  chan uint64
	version uint64
	refuse  bool // clients refuse every response
}

// bubble runs a test with a control plane whose members and offers are not known yet.
func bubble(t *testing.T, cfg Config, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		cfg.Logger = slog.New(slog.DiscardHandler)
		cfg.Grace, cfg.Gather = max(cfg.Grace, 0), max(cfg.Gather, 0)
		cfg.MaxClients, cfg.MaxServices = max(cfg.MaxClients, 8), max(cfg.MaxServices, 4)
		m, lines := newMetrics(prometheus.NewRegistry()), loglimit.New(cfg.Logger)
		c := newClients(cfg, nil, m, lines)
		r := &rig{t: t, ctx: ctx, clients: c, worlds: make(chan world), joined: make(chan uint64, 1)}
		r.server = server.NewServer(ctx, c, callbacks{c}, config.DeactivateLegacyWildcard())
		done := make(chan struct{})
		go func() { defer close(done); newPlanner(cfg, false, c, m).run(ctx, r.worlds, r.joined) }()
		test(r)
		stop()
		<-done
		lines.Stop()
		synctest.Wait()
	})
}

// offers publishes a world with these endpoints of echo.
func (r *rig) offers(endpoints ...*advertise.Endpoint) {
	r.publish(&fakeWorld{of: map[string][]*advertise.Endpoint{"echo": endpoints}})
}

func (r *rig) publish(w *fakeWorld) {
	r.t.Helper()
	if w.snapshot == nil {
		r.version++
		w.snapshot = membership.NewSnapshot(r.version, "control", []membership.Member{{ID: "control"}})
	}
	r.worlds <- w
	r.settle()
}

// settle lets a round of plans pass.
func (r *rig) settle() {
	synctest.Wait()
	time.Sleep(2 * planInterval)
	synctest.Wait()
}

// known makes members and offers known.
func (r *rig) known(endpoints ...*advertise.Endpoint) {
	r.joined <- 1
	r.offers(endpoints...)
}

// stream is the stream of an Envoy without a socket.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	in     chan *discovery.DiscoveryRequest
	end    context.CancelFunc
	ended  chan error
	names  []string
	refuse bool // every response

	mu     sync.Mutex // guards the fields below
	all    int        // responses, also without endpoints
	pushes map[string]int
	has    map[string]*endpoint.ClusterLoadAssignment
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Recv() (*discovery.DiscoveryRequest, error) {
	select {
	case r := <-s.in:
		return r, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

func (s *stream) Send(r *discovery.DiscoveryResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	for _, any := range r.GetResources() {
		load := &endpoint.ClusterLoadAssignment{}
		if err := any.UnmarshalTo(load); err != nil {
			return err
		}
		s.pushes[load.GetClusterName()]++
		s.has[load.GetClusterName()] = load
	}
	reply := &discovery.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResourceNames: s.names, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}
	if s.refuse {
		reply.VersionInfo, reply.ErrorDetail = "", &rpcstatus.Status{Message: "it does not like it"}
	}
	go func() {
		select {
		case s.in <- proto.Clone(reply).(*discovery.DiscoveryRequest):
		case <-s.ctx.Done():
		}
	}()
	return nil
}

// count returns how often endpoints of a service have arrived, load the newest of them.
func (s *stream) count(service string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pushes[service]
}

func (s *stream) load(service string) *endpoint.ClusterLoadAssignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[service]
}

// connect opens a stream and subscribes; without names it subscribes to echo.
func (r *rig) connect(id string, names ...string) *stream {
	if len(names) == 0 {
		names = []string{"echo"}
	}
	s := &stream{in: make(chan *discovery.DiscoveryRequest), ended: make(chan error, 1), pushes: map[string]int{}, has: map[string]*endpoint.ClusterLoadAssignment{}, names: names, refuse: r.refuse}
	s.ctx, s.end = context.WithCancel(r.ctx)
	go func() { s.ended <- r.server.StreamHandler(s, resource.AnyType) }()
	s.in <- &discovery.DiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: resource.EndpointType, ResourceNames: names}
	return s
}

// fleet connects clients envoy-0 to envoy-(n-1).
func (r *rig) fleet(n int) (all []*stream) {
	for _, c := range relays(n) {
		all = append(all, r.connect(c.ID))
	}
	r.settle()
	return all
}

func (s *stream) workers(t *testing.T, service string) []string {
	t.Helper()
	load := s.load(service)
	if load == nil {
		t.Fatalf("no endpoints of %s have arrived", service)
	}
	return slices.Sorted(maps.Keys(endpointsOf(t, load)))
}

// agree checks that the clients have the ranges of a plan of these clients and workers.
func agree(t *testing.T, clients map[string]*stream, planned []affinity.Relay, workers []string) {
	t.Helper()
	plan, err := affinity.NewPlan(affinity.PlanConfig{Service: "echo", Relays: planned, RelaysPerService: max(3, len(planned)), Workers: affinity.Workers(workers)})
	if err != nil {
		t.Fatal(err)
	}
	for id, s := range clients {
		index, _ := plan.Index(id)
		row, err := plan.Assignments(index)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, a := range row {
			want = append(want, a.Worker)
		}
		slices.Sort(want)
		if got := s.workers(t, "echo"); !slices.Equal(got, want) {
			t.Errorf("%s has %v, its range is %v", id, got, want)
		}
	}
}

func byID(all []*stream) map[string]*stream {
	out := map[string]*stream{}
	for i, s := range all {
		out[fmt.Sprintf("envoy-%d", i)] = s
	}
	return out
}

func offers(n int) (out []*advertise.Endpoint, ids []string) {
	for i := range n {
		out, ids = append(out, offer(i)), append(ids, fmt.Sprintf("w%d", i))
	}
	return out, ids
}

func TestAReconnectWithinTheGraceMovesNothing(t *testing.T) {
	bubble(t, Config{Grace: 15 * time.Second}, func(r *rig) {
		endpoints, ids := offers(12)
		r.known(endpoints...)
		all := r.fleet(6)
		agree(t, byID(all), relays(6), ids)
		before, pushes := all[2].load("echo"), all[0].count("echo")

		all[2].end()
		time.Sleep(14 * time.Second)
		all[2] = r.connect("envoy-2")
		r.settle()
		if !proto.Equal(all[2].load("echo"), before) {
			t.Errorf("after a restart the client has\n%v\ninstead of\n%v", all[2].load("echo"), before)
		}
		time.Sleep(time.Minute)
		r.settle()
		if all[0].count("echo") != pushes {
			t.Errorf("another client got %d pushes", all[0].count("echo")-pushes)
		}

		all[2].end() // and does not come back
		time.Sleep(15*time.Second + planInterval)
		r.settle()
		left := byID(all)
		delete(left, "envoy-2")
		agree(t, left, slices.Delete(relays(6), 2, 3), ids)
	})
}

// A load balancer in front of the control plane, or its network, ends all streams together.
// The Envoys go on with what they have, and come back one by one.
func TestClientsThatLoseTheirStreamsTogetherKeepTheirRanges(t *testing.T) {
	bubble(t, Config{Grace: 15 * time.Second}, func(r *rig) {
		endpoints, ids := offers(12)
		r.known(endpoints...)
		all := r.fleet(6)
		for _, s := range all {
			s.end()
		}
		for i := range all {
			time.Sleep(2 * time.Second)
			all[i] = r.connect(fmt.Sprintf("envoy-%d", i))
			r.settle()
			agree(t, map[string]*stream{fmt.Sprintf("envoy-%d", i): all[i]}, relays(6), ids)
		}
		for i, s := range all {
			if s.count("echo") != 1 {
				t.Errorf("envoy-%d got %d pushes after it came back", i, s.count("echo"))
			}
		}
	})
}

// A client within its grace counts once, also when it connects again: otherwise a fleet of as many
// clients as allowed could not return after its connections were cut.
func TestAFullFleetThatReconnectsIsNotRefused(t *testing.T) {
	bubble(t, Config{Grace: 15 * time.Second, MaxClients: 8}, func(r *rig) {
		all, ids := offers(30)
		r.known(all...)
		for _, s := range r.fleet(8) {
			s.end()
		}
		r.settle()
		again := r.fleet(8)
		agree(t, byID(again), relays(8), ids)
		again[0].end()
		r.settle()
		if err := <-r.connect("stranger").ended; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a ninth client: %v", err)
		}
		r.connect("envoy-0")
		r.settle()
	})
}

func TestNothingIsSentUntilMembersOffersAndClientsAreKnown(t *testing.T) {
	bubble(t, Config{Gather: 10 * time.Second}, func(r *rig) {
		endpoints, ids := offers(12)
		first := r.connect("envoy-0")
		silent := func(when string) {
			t.Helper()
			r.settle()
			if load := first.load("echo"); load != nil {
				t.Fatalf("%s: %v", when, load)
			}
		}
		silent("at the start")
		r.publish(&fakeWorld{of: map[string][]*advertise.Endpoint{}})
		silent("no member has been joined, so there may be offers")
		r.joined <- 3
		silent("the snapshot is older than the one with the members")
		r.version = 2
		r.publish(&fakeWorld{unsettled: true})
		silent("records are missing")
		r.offers(endpoints...)
		silent("other clients may not be back yet")
		second := r.connect("envoy-1")
		time.Sleep(10 * time.Second)
		r.settle()
		agree(t, map[string]*stream{"envoy-0": first, "envoy-1": second}, relays(2), ids)
		if first.count("echo") != 1 {
			t.Errorf("the first client got %d pushes", first.count("echo"))
		}
	})
}

func TestAChangeOfOneServiceResendsNoOther(t *testing.T) {
	bubble(t, Config{}, func(r *rig) {
		echo, _ := offers(4)
		mail, _ := offers(3)
		r.joined <- 1
		r.publish(&fakeWorld{of: map[string][]*advertise.Endpoint{"echo": echo, "mail": mail}})
		both, other := r.connect("envoy-0", "echo", "mail"), r.connect("envoy-1", "echo")
		r.settle()
		mailBefore, echoBefore := both.count("mail"), other.count("echo")
		r.publish(&fakeWorld{of: map[string][]*advertise.Endpoint{"echo": echo, "mail": slices.Clone(mail[:2])}})
		if both.count("mail") != mailBefore+1 || both.count("echo") != 1 || other.count("echo") != echoBefore {
			t.Errorf("pushes after a change of mail: %d of mail, %d of echo, before %d", both.count("mail"), other.count("echo"), echoBefore)
		}
	})
}

func TestAVanishedWorkerIsRemovedImmediatelyAndKeepsItsPlace(t *testing.T) {
	bubble(t, Config{Grace: 15 * time.Second}, func(r *rig) {
		endpoints, ids := offers(12)
		r.known(endpoints...)
		all := r.fleet(6)
		r.settle()
		before, pushes := map[int][]string{}, map[int]int{}
		for i, s := range all {
			before[i] = s.workers(t, "echo")
			pushes[i] = s.count("echo") // more than one if others have connected since
		}
		r.offers(slices.Delete(slices.Clone(endpoints), 3, 4)...)
		without := func(list []string) []string {
			return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return id == "w3" })
		}
		for i, s := range all {
			if got, want := s.workers(t, "echo"), without(before[i]); !slices.Equal(got, want) {
				t.Errorf("envoy-%d has %v, not %v", i, got, want)
			}
			if had, again := slices.Contains(before[i], "w3"), s.count("echo") > pushes[i]; had != again {
				t.Errorf("envoy-%d had the worker: %v, and got a push: %v", i, had, again)
			}
		}
		time.Sleep(15 * time.Second)
		r.settle()
		agree(t, byID(all), relays(6), without(ids))
	})
}

func TestWhileTheViewIsDegradedFailedWorkersStay(t *testing.T) {
	bubble(t, Config{}, func(r *rig) {
		endpoints, ids := offers(6)
		r.known(endpoints...)
		all := r.fleet(2)
		gone := []membership.Departure{{Member: membership.Member{ID: "w0"}, Reason: membership.Failed}, {Member: membership.Member{ID: "w1"}, Reason: membership.Left}}
		w := &fakeWorld{snapshot: membership.NewSnapshot(9, "control", nil).WithDepartures(gone, true), of: map[string][]*advertise.Endpoint{"echo": endpoints[2:]}}
		r.publish(w)
		agree(t, byID(all), relays(2), slices.Delete(slices.Clone(ids), 1, 2))
		r.offers(endpoints[2:]...)
		agree(t, byID(all), relays(2), ids[2:])
	})
}

func TestASettingForOrderedWorkersStopsNoPlan(t *testing.T) {
	bubble(t, Config{Plan: affinity.PlanConfig{WorkersOrdered: true}}, func(r *rig) {
		endpoints, ids := offers(6)
		r.known(endpoints...) // which are not in the order of the ring
		agree(t, byID(r.fleet(1)), relays(1), ids)
	})
}

func TestAServiceWithoutWorkersIsSentEmpty(t *testing.T) {
	bubble(t, Config{}, func(r *rig) {
		r.known()
		s := r.connect("envoy-0", "unknown")
		r.settle()
		if got := s.workers(t, "unknown"); len(got) != 0 {
			t.Error(got)
		}
	})
}

func TestListedClientsHaveTheirRangesConnectedOrNot(t *testing.T) {
	bubble(t, Config{Clients: relays(6)}, func(r *rig) {
		endpoints, ids := offers(12)
		r.known(endpoints...)
		one := r.connect("envoy-4")
		r.settle()
		agree(t, map[string]*stream{"envoy-4": one}, relays(6), ids)
		other := r.connect("envoy-1")
		r.settle()
		one.end()
		r.settle()
		agree(t, map[string]*stream{"envoy-1": other}, relays(6), ids)
		if one.count("echo") != 1 || other.count("echo") != 1 {
			t.Error("a client of the list moved another")
		}
	})
}

func TestTwoStreamsOfOneClientCountOnce(t *testing.T) {
	bubble(t, Config{}, func(r *rig) {
		endpoints, ids := offers(12)
		r.known(endpoints...)
		all := r.fleet(4)
		before := all[1].count("echo") // more than one if the clients were seen in more than one plan
		second := r.connect("envoy-0")
		r.settle()
		all[0].end()
		r.settle()
		all[0] = second
		agree(t, byID(all), relays(4), ids)
		if n := all[1].count("echo"); n > before {
			t.Errorf("another client got %d pushes more", n-before)
		}
	})
}

func TestAClientThatRefusesEverythingIsSentEachVersionOnce(t *testing.T) {
	bubble(t, Config{}, func(r *rig) {
		endpoints, _ := offers(3)
		r.known(endpoints...)
		r.refuse = true
		s := r.connect("envoy-0")
		r.settle()
		r.offers(endpoints[1:]...)
		if n := testutil.ToFloat64(r.clients.metrics.nacks); s.count("echo") != 2 || s.all != 2 || n != 2 {
			t.Errorf("%d responses, %d of them with endpoints, %v refused: want two of each", s.all, s.count("echo"), n)
		}
	})
}
