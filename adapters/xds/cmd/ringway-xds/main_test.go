package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/membership/identity"
)

const workers = 7

var envoys = []string{"envoy-0", "envoy-1", "envoy-2", "envoy-3", "envoy-4"}

// addressOf returns the address at which a worker offers its service.
func addressOf(worker string) string {
	return "127.0.0.1:800" + strings.TrimPrefix(worker, "w") // of the worker's host, as the offer of a certified worker must be
}

// The program, workers and clients are processes or members over real sockets.
func TestTheProgramGivesEachEnvoyTheRangeOfItsRelayAndCounts(t *testing.T) {
	dir := t.TempDir()
	if err := procs.Build(".", dir, false, "."); err != nil {
		t.Fatal(err)
	}
	gossip, addr, admin := procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t)
	program := procs.Start(t, procs.Config{Binary: "ringway-xds", Dir: dir, Args: []string{
		"-cluster", "shop", "-environment", "dev", "-gossip-addr", gossip, "-addr", addr, "-admin-addr", admin, "-clients", strings.Join(envoys, ","),
	}})
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		code, body, _ := procs.Ask(http.DefaultClient, req) // 0 until the program listens
		return code, string(body)
	}
	metric := func(name string) float64 {
		_, text := get("/metrics")
		value, found := procs.Metrics(text)[name]
		if !found {
			return -1
		}
		return value
	}
	startWorkers(t, gossip, nil)
	procs.Await(t, "the program knows the workers and is ready", func() bool {
		code, _ := get("/readyz")
		return code == http.StatusOK && metric("ringway_advertise_endpoints") == workers
	})

	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	want := ranges(t)
	// The first client waits until the plan has every worker: the others then get one response each.
	open(t, conn, envoys[0]).until(want[envoys[0]])
	pushed := metric("ringway_xds_updates_total")
	for _, id := range envoys[1:] {
		e := open(t, conn, id)
		if got := e.next(); !slices.Equal(got, want[id]) {
			t.Errorf("%s has %q, and the relay in its place has %q", id, got, want[id])
		}
		if id == envoys[1] {
			e.refuse()
		}
	}
	stranger := open(t, conn, "stranger")
	if _, err := stranger.stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a client that is not in the list: %v", err)
	}

	counted := map[string]float64{
		"ringway_xds_clients": 5, "ringway_xds_streams": 5, "ringway_xds_updates_total": pushed + 4, "ringway_xds_nacks_total": 1,
		`ringway_xds_refused_total{reason="unlisted"}`: 1, `ringway_xds_refused_total{reason="node"}`: 0, `ringway_xds_plans_total{result="failed"}`: 0, "ringway_ready": 1,
	}
	procs.Await(t, fmt.Sprintf("the metrics are %v", counted), func() bool {
		for name, value := range counted {
			if metric(name) != value {
				return false
			}
		}
		return metric(`ringway_xds_plans_total{result="ok"}`) > 0
	})
	program.Signal(t, syscall.SIGTERM)
	if code := program.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// spiffeTemplate is how the issuer of the next test names workloads.
const spiffeTemplate = "spiffe://shop.test/{environment}/{cluster}/{role}/{node}"

// All of them have a SPIFFE ID of another issuer: the program, the workers, and the Envoys.
func TestTheProgramAndItsEnvoysHaveSPIFFEIDsOfAnotherIssuer(t *testing.T) {
	dir := t.TempDir()
	if err := procs.Build(".", dir, false, "."); err != nil {
		t.Fatal(err)
	}
	ca := clienttlstest.New(t)
	named := func(role identity.Role, node string) clienttlstest.Certificate {
		return clienttlstest.Certificate{URI: fmt.Sprintf("spiffe://shop.test/dev/shop/%s/%s", role, node)}
	}
	source := func(role identity.Role, node string) *identity.Source {
		cert, key := ca.Issue(named(role, node))
		s, err := identity.NewStaticSource(identity.PEM{Certificate: cert, Key: key, Authorities: ca.PEM()}, identity.SourceConfig{Template: spiffeTemplate})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	gossip, addr, admin := procs.FreeAddr(t), procs.FreeAddr(t), procs.FreeAddr(t)
	args := []string{"-cluster", "shop", "-environment", "dev", "-gossip-addr", gossip, "-addr", addr, "-admin-addr", admin, "-clients", strings.Join(envoys, ",")}
	cert, key := ca.Files(filepath.Join(dir, "xds"), named(identity.RoleObserver, "xds"))
	certificate := []string{"-tls-cert", cert, "-tls-key", key, "-tls-ca", ca.WriteTo(filepath.Join(dir, "ca.crt"))}
	for want, more := range map[string][]string{
		"its SPIFFE ID counts only with an identity template": certificate,
		"{node} is missing":                           append([]string{"-identity-template", "spiffe://shop.test/{environment}/{cluster}/{role}/xds"}, certificate...),
		"without certificates there are no names":     {"-identity-template", spiffeTemplate},
		"it does not begin with spiffe://other.test/": append([]string{"-identity-template", strings.Replace(spiffeTemplate, "shop", "other", 1)}, certificate...),
	} {
		refused := procs.Start(t, procs.Config{Binary: "ringway-xds", Dir: dir, Args: slices.Concat(args, more)})
		if code := refused.Exit(t); code != 1 || !strings.Contains(refused.Output(), want) {
			t.Errorf("exit code %d, want 1 and %q:\n%s", code, want, refused.Output())
		}
	}

	program := procs.Start(t, procs.Config{Binary: "ringway-xds", Dir: dir, Args: slices.Concat(args, certificate, []string{"-identity-template", spiffeTemplate})})
	startWorkers(t, gossip, source)
	as := func(role identity.Role, node string) *grpc.ClientConn {
		own := source(role, node)
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(own.ClientConfig(own.Policy(identity.Hello), identity.Expected{Node: "xds"}, "h2"))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	procs.Await(t, "the program listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	first := as(identity.RoleRelay, envoys[0])
	open(t, first, envoys[0]).until(ranges(t)[envoys[0]])
	if _, err := open(t, first, envoys[1]).stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an Envoy with the SPIFFE ID of another one: %v", err)
	}
	program.Signal(t, syscall.SIGTERM)
	if code := program.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The settings of a fleet that decide which workers it uses are those of all members. Envoys would
// otherwise send to a stolen certificate that is denied elsewhere.
func TestTheProgramSendsTheWorkersThatTheFleetUses(t *testing.T) {
	dir := t.TempDir()
	if err := procs.Build(".", dir, false, "."); err != nil {
		t.Fatal(err)
	}
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	claims := func(role identity.Role, node string) identity.Claims {
		c := identity.Claims{Role: role, Cluster: "shop", Environment: "dev", Node: node}
		if role == identity.RoleWorker && node != "w0" {
			c.Services = "echo,echo-*"
		}
		return c
	}
	source := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(claims(role, node), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path+".next", content, 0o600), os.Rename(path+".next", path)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key, err := authority.Issue(claims(identity.RoleObserver, "xds"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	gossip, addr := procs.FreeAddr(t), procs.FreeAddr(t)
	args := []string{"-cluster", "shop", "-environment", "dev", "-gossip-addr", gossip, "-addr", addr, "-admin-addr", procs.FreeAddr(t), "-clients", envoys[0]}
	rules := []string{"-require-service-names", "-tls-deny-file", write("denied", nil), "-endpoint-allowed-cidr", "10.9.0.0/16, 10.8.0.0/16", "-max-services-per-record", "200"}
	for want, more := range map[string][]string{
		"-endpoint-allowed-cidr \"10.9.0.5\": not a network": {"-endpoint-allowed-cidr", "10.8.0.0/16,10.9.0.5"},
		"at most 1024 services per record":                   {"-max-services-per-record", "1025"},
		"without certificates there are none to deny":        rules[1:],
		"the node \"xds\" has no certificate":                rules[:1],
	} {
		refused := procs.Start(t, procs.Config{Binary: "ringway-xds", Dir: dir, Args: slices.Concat(args, more)})
		if code := refused.Exit(t); code != 1 || !strings.Contains(strings.ReplaceAll(refused.Output(), `\`, ""), want) {
			t.Errorf("exit code %d, want 1 and %q:\n%s", code, want, refused.Output())
		}
	}

	program := procs.Start(t, procs.Config{Binary: "ringway-xds", Dir: dir, Args: slices.Concat(args, rules, []string{
		"-tls-cert", write("xds.crt", cert), "-tls-key", write("xds.key", key), "-tls-ca", write("ca.crt", authority.CertificatePEM()),
	})})
	startWorkers(t, gossip, source)
	far := advertise.Service{Name: "echo", Address: "10.9.0.5:8007", Secured: true} // of another host, and one of many
	services := []advertise.Service{far}
	for i := range 150 {
		far.Name = fmt.Sprintf("echo-%d", i)
		services = append(services, far)
	}
	startWorker(t, advertise.AdvertiserConfig{
		ID: "w7", Seeds: []string{gossip}, Services: services, Identity: source(identity.RoleWorker, "w7"),
		AllowedAddrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, MaxServicesPerRecord: 200,
	})
	want := []string{services[0].Address} // w0 names no service
	for i := 1; i < workers; i++ {
		want = append(want, addressOf(fmt.Sprintf("w%d", i)))
	}
	own := source(identity.RoleRelay, envoys[0])
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(own.ClientConfig(own.Policy(identity.Hello), identity.Expected{Node: "xds"}, "h2"))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	procs.Await(t, "the program listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	e := open(t, conn, envoys[0])
	e.until(want)
	write("denied", []byte("node w3\n"))
	e.send(&discovery.DiscoveryRequest{VersionInfo: e.last.GetVersionInfo()})
	e.until(slices.DeleteFunc(want, func(address string) bool { return address == addressOf("w3") }))
	program.Signal(t, syscall.SIGTERM)
	if code := program.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// startWorkers starts members that offer echo, until the end of the test. With source they have
// certificates.
func startWorkers(t *testing.T, seed string, source func(identity.Role, string) *identity.Source) {
	t.Helper()
	for i := range workers {
		id := fmt.Sprintf("w%d", i)
		cfg := advertise.AdvertiserConfig{ID: id, Seeds: []string{seed}, Services: []advertise.Service{{Name: "echo", Address: addressOf(id)}}}
		if source != nil {
			cfg.Identity, cfg.Services[0].Secured = source(identity.RoleWorker, id), true
		}
		startWorker(t, cfg)
	}
}

func startWorker(t *testing.T, cfg advertise.AdvertiserConfig) {
	t.Helper()
	cfg.Cluster, cfg.Environment, cfg.BindAddr, cfg.DrainDelay = "shop", "dev", "127.0.0.1:0", time.Millisecond
	a, err := advertise.NewAdvertiser(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// ranges returns the addresses to which relays with the ids of the Envoys connect, sorted.
func ranges(t *testing.T) map[string][]string {
	t.Helper()
	var ids []string
	for i := range workers {
		ids = append(ids, fmt.Sprintf("w%d", i))
	}
	plan, err := affinity.NewPlan(affinity.PlanConfig{Service: "echo", Relays: affinity.Relays(envoys), IndexSource: affinity.IndexRank, RelaysPerService: len(envoys), Workers: affinity.Workers(ids)})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for i, id := range plan.Affine() {
		row, err := plan.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range row {
			all[id] = append(all[id], addressOf(a.Worker))
		}
		slices.Sort(all[id])
	}
	return all
}

// envoy is a stream of ADS.
type envoy struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	last   *discovery.DiscoveryResponse
}

func open(t *testing.T, conn *grpc.ClientConn, id string) *envoy {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), procs.Patience)
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e := &envoy{t: t, stream: stream, last: &discovery.DiscoveryResponse{}}
	e.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: id}})
	return e
}

// send sends a request for echo, which acknowledges the last response.
func (e *envoy) send(r *discovery.DiscoveryRequest) {
	r.TypeUrl, r.ResourceNames, r.ResponseNonce = resource.EndpointType, []string{"echo"}, e.last.GetNonce()
	_ = e.stream.Send(r) // an error is that of Recv
}

// next returns the addresses of the next response, sorted.
func (e *envoy) next() []string {
	e.t.Helper()
	var err error
	if e.last, err = e.stream.Recv(); err != nil {
		e.t.Fatal(err)
	}
	addresses := map[string]bool{}
	for _, one := range e.last.GetResources() {
		load := &endpoint.ClusterLoadAssignment{}
		if err := one.UnmarshalTo(load); err != nil {
			e.t.Fatal(err)
		}
		for _, group := range load.GetEndpoints() {
			for _, to := range group.GetLbEndpoints() {
				at := to.GetEndpoint().GetAddress().GetSocketAddress()
				addresses[fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(addresses))
}

func (e *envoy) until(want []string) {
	e.t.Helper()
	for !slices.Equal(e.next(), want) {
		e.send(&discovery.DiscoveryRequest{VersionInfo: e.last.GetVersionInfo()})
	}
}

func (e *envoy) refuse() {
	e.send(&discovery.DiscoveryRequest{ErrorDetail: &rpcstatus.Status{Message: "no such address"}})
}

func TestAnAdminAPIThatOtherHostsReachNeedsATokenOrInsecure(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "unix:" + t.TempDir() + "/s": true, "0.0.0.0:0": false, ":0": false, "nonsense": false} {
		socket, err := listen(addr, false)
		if (err == nil) != want {
			t.Errorf("%s: %v", addr, err)
		}
		if err == nil {
			_ = socket.Close()
		}
	}
	socket, err := listen(":0", true)
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
}

// Without places every client would plan with the workers of all zones.
func TestAFixedListHasThePlacesOfItsClients(t *testing.T) {
	want := []affinity.Relay{
		{ID: "e1"}, {ID: "e2", Place: affinity.Place{Datacenter: "a"}}, {ID: "e3", Place: affinity.Place{Datacenter: "b", Region: "eu"}},
	}
	if got := fixed("e1,e2@a,e3@b/eu"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
