package xds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// waitTime bounds the waits for events; none takes as long on an idle machine.
const waitTime = 60 * time.Second

// cluster is a control plane that runs, and workers over real sockets.
type cluster struct {
	*ControlPlane
	t       *testing.T
	node    *membership.Node
	members sync.WaitGroup // those that leave at the end of the test
	end     context.Context
}

func start(t *testing.T, change func(*membership.Config, *Config)) *cluster {
	t.Helper()
	member := membership.Config{Cluster: "shop", Environment: "dev", ID: "control", Role: identity.RoleObserver, BindAddr: "127.0.0.1:0", LeaveTimeout: time.Second}
	cfg := Config{Addr: "127.0.0.1:0", Grace: -1, Gather: -1, Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&member, &cfg)
	}
	node, err := membership.New(member)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Node = node
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	of := &cluster{ControlPlane: c, t: t, node: node}
	ctx, stop := context.WithCancel(context.Background())
	of.end = ctx
	t.Cleanup(func() { stop(); of.members.Wait() })
	of.members.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return of
}

// worker is a member that offers services at an address of its own.
type worker struct {
	*advertise.Advertiser
	leave func()
}

func (c *cluster) worker(i int, services ...string) *worker {
	c.t.Helper()
	cfg := advertise.AdvertiserConfig{Cluster: "shop", Environment: "dev", ID: fmt.Sprintf("w%d", i), BindAddr: "127.0.0.1:0", Seeds: []string{c.node.Addr()}, DrainDelay: time.Millisecond}
	for n, name := range services {
		cfg.Services = append(cfg.Services, advertise.Service{Name: name, Address: fmt.Sprintf("127.0.%d.1:%d", i, 80+n)})
	}
	a, err := advertise.NewAdvertiser(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(c.end)
	c.members.Go(func() {
		if err := a.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	return &worker{a, stop}
}

// envoy is a client of ADS, over the stubs of go-control-plane. The client in that module, sotw,
// names no resources, which EDS needs.
type envoy struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	names  []string
	end    func()
	news   chan struct{} // a response has arrived, or the stream has ended

	sending sync.Mutex

	mu     sync.Mutex
	has    map[string]*endpoint.ClusterLoadAssignment
	pushes map[string]int
	nack   bool
	err    error
}

func (c *cluster) envoy(node *core.Node, creds credentials.TransportCredentials, names ...string) *envoy {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.Addr(), grpc.WithTransportCredentials(creds))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &envoy{t: c.t, names: names, news: make(chan struct{}, 1), has: map[string]*endpoint.ClusterLoadAssignment{}, pushes: map[string]int{}}
	if e.stream, err = discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err != nil {
		e.err = err
	}
	done := make(chan struct{})
	e.end = sync.OnceFunc(func() {
		cancel()
		_ = conn.Close()
		<-done
	})
	c.t.Cleanup(e.end)
	if e.err == nil {
		e.send(&discovery.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNames: names})
	}
	go func() { defer close(done); e.receive() }()
	return e
}

func (e *envoy) send(r *discovery.DiscoveryRequest) {
	e.sending.Lock()
	defer e.sending.Unlock()
	_ = e.stream.Send(r) // an error is that of Recv
}

func (e *envoy) receive() {
	for e.err == nil {
		r, err := e.stream.Recv()
		e.mu.Lock()
		e.err = err
		reply := &discovery.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResourceNames: e.names, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}
		if e.nack {
			reply.VersionInfo, reply.ErrorDetail = "", &rpcstatus.Status{Message: "no\nthanks"}
		}
		for _, any := range r.GetResources() {
			load := &endpoint.ClusterLoadAssignment{}
			if err := any.UnmarshalTo(load); err != nil {
				e.t.Error(err)
			}
			e.has[load.GetClusterName()] = load
			e.pushes[load.GetClusterName()]++
		}
		e.mu.Unlock()
		if err == nil {
			e.send(reply)
		}
		select {
		case e.news <- struct{}{}:
		default:
		}
	}
}

// until waits until the condition holds after one of the responses.
func (e *envoy) until(what string, holds func() bool) {
	e.t.Helper()
	timeout := time.After(waitTime)
	for {
		e.mu.Lock()
		ok, has, err := holds(), fmt.Sprint(e.has), e.err
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-e.news:
		case <-timeout:
			e.t.Fatalf("%s: not reached; it has %s, error %v", what, has, err)
		}
	}
}

func (e *envoy) pushesOf(service string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pushes[service]
}

// refused waits for the end of the stream and checks its status.
func (e *envoy) refused(code codes.Code) {
	e.t.Helper()
	e.until("refusal", func() bool { return e.err != nil })
	if status.Code(e.err) != code {
		e.t.Errorf("refused with %v, want %v", e.err, code)
	}
}

func (c *cluster) fleet(of []affinity.Relay, names ...string) map[string]*envoy {
	all := map[string]*envoy{}
	for _, r := range of {
		node := &core.Node{Id: r.ID, Locality: &core.Locality{Zone: r.Datacenter, Region: r.Region}}
		all[r.ID] = c.envoy(node, insecure.NewCredentials(), names...)
	}
	return all
}

func numbers(n int) (out []affinity.Worker) {
	for i := range n {
		out = append(out, affinity.Worker{ID: fmt.Sprintf("w%d", i)})
	}
	return out
}

func rowsOf(t *testing.T, clients []affinity.Relay, workers []affinity.Worker) map[string]string {
	t.Helper()
	plan, err := affinity.NewPlan(affinity.PlanConfig{Service: "echo", Relays: clients, IndexSource: affinity.IndexRank, RelaysPerService: max(3, len(clients)), Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i, id := range plan.Affine() {
		row, err := plan.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		shares := map[string]uint32{}
		for _, a := range row {
			shares[a.Worker] = max(1, uint32(a.Weight*weightScale+0.5))
		}
		out[id] = fmt.Sprint(shares)
	}
	return out
}

// reach waits until each of the clients has the row of the plan.
func reach(t *testing.T, all map[string]*envoy, rows map[string]string) {
	t.Helper()
	for id, e := range all {
		e.until(id+" has "+rows[id], func() bool {
			shares := map[string]uint32{}
			for worker, one := range endpointsOf(t, e.has["echo"]) {
				if one.GetHealthStatus() == core.HealthStatus_HEALTHY {
					shares[worker] = one.GetLoadBalancingWeight().GetValue()
				}
			}
			return e.has["echo"] != nil && fmt.Sprint(shares) == rows[id]
		})
	}
}

func TestEnvoysFollowWorkersThatJoinDrainAndLeave(t *testing.T) {
	c := start(t, nil)
	var all []*worker
	for i := range 7 {
		all = append(all, c.worker(i, "echo"))
	}
	clients := relays(5)
	envoys := c.fleet(clients, "echo")
	reach(t, envoys, rowsOf(t, clients, numbers(7)))

	c.worker(7, "echo")
	reach(t, envoys, rowsOf(t, clients, numbers(8)))

	drains := 0
	all[2].Drain()
	without := slices.Delete(numbers(8), 2, 3)
	reach(t, envoys, rowsOf(t, clients, without))
	for _, e := range envoys {
		e.mu.Lock()
		if one := endpointsOf(t, e.has["echo"])["w2"]; one != nil && one.GetHealthStatus() == core.HealthStatus_DRAINING {
			drains++
		}
		e.mu.Unlock()
	}
	if drains != 3 {
		t.Errorf("the draining worker stays with %d clients, not with the 3 that it had", drains)
	}

	all[2].leave()
	for _, e := range envoys {
		e.until("the worker has left", func() bool { return endpointsOf(t, e.has["echo"])["w2"] == nil })
	}
	reach(t, envoys, rowsOf(t, clients, without))
}

func TestAClientThatLeavesMovesOnlyWhatThePlanMoves(t *testing.T) {
	c := start(t, nil)
	for i := range 6 {
		c.worker(i, "echo")
	}
	news := c.worker(6, "news")
	clients := relays(6)
	envoys := c.fleet(clients, "echo", "news")
	news2 := c.envoy(&core.Node{Id: "reader"}, insecure.NewCredentials(), "news")
	before := rowsOf(t, clients, numbers(6))
	reach(t, envoys, before)
	pushes := map[string]int{}
	for id, e := range envoys {
		pushes[id] = e.pushesOf("echo")
	}
	readers := news2.pushesOf("news")

	envoys["envoy-3"].end()
	delete(envoys, "envoy-3")
	clients = slices.Delete(clients, 3, 4)
	after := rowsOf(t, clients, numbers(6))
	reach(t, envoys, after)
	// Responses of a stream are in order: after this change no earlier one is missing.
	if err := news.Set(advertise.Service{Name: "news", Address: "127.0.6.1:99"}); err != nil {
		t.Fatal(err)
	}
	for id, e := range envoys {
		e.until("news of "+id, func() bool {
			one := endpointsOf(t, e.has["news"])["w6"]
			return one.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue() == 99
		})
		if moved, got := before[id] != after[id], e.pushesOf("echo") > pushes[id]; moved != got {
			t.Errorf("%s: the plan moves it: %v; it got a push: %v", id, moved, got)
		}
	}
	news2.until("news of the reader", func() bool { return news2.pushes["news"] > readers })
	if n := news2.pushesOf("echo"); n > 0 {
		t.Errorf("a client that does not subscribe got %d pushes", n)
	}
}

func TestHostileClientsAreRefusedWithAStatus(t *testing.T) {
	c := start(t, func(_ *membership.Config, cfg *Config) { cfg.MaxClients, cfg.MaxServices = 2, 2 })
	c.worker(0, "echo")
	plain := insecure.NewCredentials()
	good := c.envoy(&core.Node{Id: "envoy-0"}, plain, "echo")
	good.until("endpoints", func() bool { return len(endpointsOf(t, good.has["echo"])) == 1 })
	for _, refusal := range []struct {
		node   *core.Node
		names  []string
		code   codes.Code
		reason string
	}{
		{nil, []string{"echo"}, codes.InvalidArgument, refusedNode},
		{&core.Node{Id: "a/b"}, []string{"echo"}, codes.InvalidArgument, refusedNode},
		{&core.Node{Id: string(make([]byte, 64))}, []string{"echo"}, codes.InvalidArgument, refusedNode},
		{&core.Node{Id: "envoy-1", Locality: &core.Locality{Zone: "a b"}}, []string{"echo"}, codes.InvalidArgument, refusedNode},
		{&core.Node{Id: "envoy-1"}, []string{"*"}, codes.InvalidArgument, refusedServiceName},
		{&core.Node{Id: "envoy-1"}, []string{"a", "b", "c"}, codes.ResourceExhausted, refusedServices},
	} {
		before := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusal.reason))
		c.envoy(refusal.node, plain, refusal.names...).refused(refusal.code)
		if n := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusal.reason)) - before; n != 1 {
			t.Errorf("%s: counted %v times", refusal.reason, n)
		}
	}
	second := c.envoy(&core.Node{Id: "envoy-1"}, plain, "echo")
	second.until("endpoints", func() bool { return second.has["echo"] != nil })
	c.envoy(&core.Node{Id: "envoy-2"}, plain, "echo").refused(codes.ResourceExhausted)
	large := &core.Node{Id: "envoy-0", UserAgentName: string(make([]byte, maxRequest))}
	c.envoy(large, plain, "echo").refused(codes.ResourceExhausted)
	if good.mu.Lock(); good.err != nil {
		t.Error("a hostile client ended the stream of another", good.err)
	}
	good.mu.Unlock()
	other := c.envoy(&core.Node{Id: "envoy-0"}, plain)
	other.send(&discovery.DiscoveryRequest{TypeUrl: resource.ClusterType})
	other.refused(codes.Unimplemented)
}

func TestARefusedResponseIsCountedAndNotRepeated(t *testing.T) {
	c := start(t, nil)
	w := c.worker(0, "echo")
	e := c.envoy(&core.Node{Id: "envoy-0"}, insecure.NewCredentials(), "echo")
	e.until("endpoints", func() bool { return len(endpointsOf(t, e.has["echo"])) == 1 })
	e.mu.Lock()
	e.nack = true
	before := e.pushes["echo"]
	e.mu.Unlock()
	for port := 90; port < 92; port++ {
		if err := w.Set(advertise.Service{Name: "echo", Address: fmt.Sprintf("127.0.0.1:%d", port)}); err != nil {
			t.Fatal(err)
		}
		e.until("the change", func() bool {
			return endpointsOf(t, e.has["echo"])["w0"].GetEndpoint().GetAddress().GetSocketAddress().GetPortValue() == uint32(port)
		})
	}
	// The second change was sent after the first refusal had been read.
	if n := testutil.ToFloat64(c.metrics.nacks); n < 1 || e.pushesOf("echo") != before+2 {
		t.Errorf("%v refusals, %d pushes", n, e.pushesOf("echo")-before)
	}
}

func TestOnlyRelaysWithTheirOwnNodeIDConnectToAControlPlaneWithACertificate(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "test", Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "shop", Environment: "dev", Node: node}, time.Hour-time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	c := start(t, func(m *membership.Config, _ *Config) { m.Identity = source(identity.RoleObserver, "control") })
	as := func(role identity.Role, node string) credentials.TransportCredentials {
		s := source(role, node)
		return credentials.NewTLS(s.ClientConfig(s.Policy(identity.Hello), identity.Expected{Node: "control"}, "h2"))
	}
	good := c.envoy(&core.Node{Id: "envoy-0"}, as(identity.RoleRelay, "envoy-0"), "echo")
	good.until("endpoints", func() bool { return good.has["echo"] != nil })
	c.envoy(&core.Node{Id: "envoy-0"}, as(identity.RoleRelay, "envoy-1"), "echo").refused(codes.PermissionDenied)
	for _, role := range []identity.Role{identity.RoleWorker, identity.RoleGate, identity.RoleClient, identity.RoleObserver} {
		c.envoy(&core.Node{Id: "envoy-0"}, as(role, "envoy-0"), "echo").refused(codes.Unavailable)
	}
	c.envoy(&core.Node{Id: "envoy-0"}, insecure.NewCredentials(), "echo").refused(codes.Unavailable)
}

// An Envoy with the incremental protocol reports what it has. After a reconnect nothing of that
// is sent, and nothing is removed before the control plane knows it.
func TestAnIncrementalClientThatReconnectsIsSentOnlyWhatChanged(t *testing.T) {
	c := start(t, nil)
	c.worker(0, "echo", "mail")
	session := func(known map[string]string) (*discovery.DeltaDiscoveryResponse, func()) {
		conn, err := grpc.NewClient("passthrough:///"+c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitTime)
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-0"}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"echo", "mail"}, InitialResourceVersions: known}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for len(known) == 0 && len(r.GetResources()) < 2 || slices.ContainsFunc(r.GetResources(), func(one *discovery.Resource) bool { return proto.Size(one.GetResource()) < 150 }) {
			// Before the worker was known.
			if err := s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: r.GetNonce()}); err != nil {
				t.Fatal(err)
			}
			if r, err = s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		return r, func() { cancel(); _ = conn.Close() }
	}
	first, end := session(nil)
	known := map[string]string{}
	for _, r := range first.GetResources() {
		known[r.GetName()] = r.GetVersion()
	}
	end()
	wrong := maps.Clone(known)
	wrong["mail"] = "another"
	again, end := session(wrong)
	defer end()
	if len(again.GetResources()) != 1 || again.GetResources()[0].GetName() != "mail" || len(again.GetRemovedResources()) > 0 {
		t.Errorf("sent %v, removed %v", again.GetResources(), again.GetRemovedResources())
	}
}
