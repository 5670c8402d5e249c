package sidecar

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// fleet is relays and workers of one cluster in this process, with certificates,
// over real sockets: everything between a client and a service.
type fleet struct {
	t         testing.TB
	authority *identity.Authority
	seeds     []string
	policies  []string       // --service-policy of every relay
	skips     []string       // --skip-relay of every relay
	relays    []func() error // stop them
}

func newFleet(t testing.TB) *fleet { return &fleet{t: t, authority: newAuthority(t)} }

// front is a relay of a fleet.
type front struct {
	*relay.Relay
	registry *prometheus.Registry
	log      *logtest.Log
}

// relay starts one; plain is one without a certificate.
func (f *fleet) relay(id string, plain bool) *front {
	f.t.Helper()
	s := relay.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", id, f.seeds
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{anyPort}, anyPort, anyPort
	s.Requests.ExposeRouteHeaders = true
	s.SkipRelays.Set(f.skips...)
	s.AllowClearText = []string{"direct"}
	s.Policies.Flags.Set(f.policies...)
	r := &front{registry: prometheus.NewRegistry(), log: &logtest.Log{}}
	cfg, err := s.Config(slog.New(slog.NewTextHandler(r.log, nil)), r.registry)
	if err != nil {
		f.t.Fatal(err)
	}
	if !plain {
		cfg.Membership.Identity = source(f.t, f.authority, claims(identity.RoleRelay, id))
	}
	cfg.ProbeDelay = time.Millisecond
	if r.Relay, err = relay.New(cfg); err != nil {
		f.t.Fatal(err)
	}
	f.seeds = append(f.seeds, r.GossipAddr())
	f.relays = append(f.relays, run(f.t, r))
	return r
}

// member joins as a worker that offers just this; plain is one without a
// certificate.
func (f *fleet) member(id string, plain bool, offer ...advertise.Service) {
	f.t.Helper()
	cfg := membership.Config{Cluster: "test", Environment: "ci", ID: id, Role: identity.RoleWorker, BindAddr: anyPort, Seeds: f.seeds}
	if !plain {
		cfg.Identity = source(f.t, f.authority, claims(identity.RoleWorker, id))
	}
	node, err := membership.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	catalogue, err := advertise.New(advertise.Config{Gossip: node})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := catalogue.Offer(offer); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = node.Close() })
	if err := node.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	run(f.t, catalogue)
}

// worker joins with a sidecar in front of its services.
func (f *fleet) worker(id string, services ...advertise.Service) *running {
	f.t.Helper()
	s := start(f.t, func(c *Config) { c.Identity = source(f.t, f.authority, claims(identity.RoleWorker, id)) }, services...)
	f.member(id, false, fronted(s, services...)...)
	// net/http waits some seconds for the first request on a new connection, such
	// as the warm ones of relays; so relays go first.
	f.t.Cleanup(func() {
		for _, stop := range f.relays {
			_ = stop() // its own cleanup has the error
		}
	})
	return s
}

// fronted are the services as they are offered.
func fronted(s *running, services ...advertise.Service) (offer []advertise.Service) {
	for _, one := range services {
		one.Address, one.Secured = s.Addr().String(), true
		offer = append(offer, one)
	}
	return offer
}

// settled waits until the relay sees n endpoints of the service.
func (r *front) settled(t testing.TB, service string, n int) {
	t.Helper()
	procs.Await(t, fmt.Sprintf("%d endpoints of %s", n, service), func() bool {
		resp, err := http.Get("http://" + r.AdminAddr() + "/api/v1/services/" + service)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var got struct{ Endpoints int }
		err = json.NewDecoder(resp.Body).Decode(&got)
		return err == nil && got.Endpoints == n && len(r.Reasons()) == 0
	})
}

func (r *front) request(t testing.TB, method, service, path string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.IngressAddr()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, service)
	return req
}

// clients are one over HTTP/1.1 and one over clear-text HTTP/2.
func clients(t testing.TB) map[string]*http.Client {
	t.Helper()
	all := map[string]*http.Client{}
	for name, two := range map[string]bool{"http/1.1": false, "h2c": true} {
		tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(!two)
		tr.Protocols.SetUnencryptedHTTP2(two)
		t.Cleanup(tr.CloseIdleConnections)
		all[name] = &http.Client{Transport: tr}
	}
	return all
}

// everything is a service that shows what a proxy can break.
func everything(t testing.TB, name string, protocol advertise.Protocol) advertise.Service {
	rpc := grpc.NewServer()
	healthpb.RegisterHealthServer(rpc, health.NewServer())
	t.Cleanup(rpc.Stop)
	mux := http.NewServeMux()
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		w.Header().Set("X-Trailer-Seen", r.Trailer.Get("X-Sent-After"))
		_, _ = fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		sum := sha256.New()
		_, _ = io.CopyN(io.MultiWriter(w, sum), rand.NewChaCha8([32]byte{1}), large)
		w.Header().Set("X-Sum", hex.EncodeToString(sum.Sum(nil)))
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 { // each waits for the client to have read the one before
			_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
			_ = http.NewResponseController(w).Flush()
			if n < 2 {
				_, _ = io.ReadFull(r.Body, make([]byte, 1))
			}
		}
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		c.SetReadLimit(1 << 20)
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	})
	return serve(t, name, protocol, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/events" {
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		mux.ServeHTTP(w, r)
	})
}

const large = 4 << 20

func TestEverythingPassesFromTheClientThroughRelayAndSidecar(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay("r1", false)
	services := []advertise.Service{everything(t, "one", advertise.HTTP1), everything(t, "two", advertise.H2C)}
	w := f.worker("w1", services...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("relay:\n%s\nsidecar:\n%s", r.log, w.log)
		}
	})
	for _, service := range []string{"one", "two"} {
		r.settled(t, service, 1)
		for protocol, client := range clients(t) {
			name := service + " over " + protocol

			content := make([]byte, large)
			_, _ = rand.NewChaCha8([32]byte{2}).Read(content)
			req := r.request(t, "POST", service, "/sum", io.MultiReader(bytes.NewReader(content))) // of unknown length
			req.Trailer = http.Header{"X-Sent-After": {"yes"}}
			resp, body := answer(t, client, req)
			if want := fmt.Sprintf("%d %x <nil>", large, sha256.Sum256(content)); resp.StatusCode != 200 || body != want || resp.Header.Get("X-Trailer-Seen") != "yes" {
				t.Errorf("%s: a large upload: %s %q %v", name, resp.Status, body, resp.Header)
			}
			if resp.Header.Get(wire.EndpointHeader) != "w1" || resp.Header.Get(wire.LoadHeader) != "" {
				t.Errorf("%s: %v", name, resp.Header)
			}

			resp, body = answer(t, client, r.request(t, "GET", service, "/large", nil))
			if sum := sha256.Sum256([]byte(body)); len(body) != large || resp.Trailer.Get("X-Sum") != hex.EncodeToString(sum[:]) {
				t.Errorf("%s: a large download of %d bytes, trailers %v", name, len(body), resp.Trailer)
			}

			read, more := io.Pipe()
			resp, err := client.Do(r.request(t, "POST", service, "/events", read))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for n := range 3 {
				event := make([]byte, len("data: 0\n\n"))
				if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", n) {
					t.Errorf("%s: event %d is %q, %v", name, n, event, err)
				}
				if n < 2 {
					_, _ = more.Write([]byte("."))
				}
			}
			_ = more.Close()
			_ = resp.Body.Close()
		}

		// Neither service accepts WebSockets over HTTP/2.
		c, _, err := websocket.Dial(t.Context(), "http://"+r.IngressAddr()+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{wire.ServiceHeader: {service}}})
		if err != nil {
			t.Fatalf("%s: %v", service, err)
		}
		c.SetReadLimit(1 << 20)
		message := bytes.Repeat([]byte("ringway"), 100_000)
		if err := c.Write(t.Context(), websocket.MessageBinary, message); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || !bytes.Equal(got, message) {
			t.Errorf("%s: %d bytes came back over a WebSocket, %v", service, len(got), err)
		}
		procs.Await(t, service+": only the open WebSocket is in flight", func() bool {
			n, _ := metricOf(t, w.registry, "ringway_sidecar_in_flight", service)
			return n == 1
		})
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
	}

	conn, err := grpc.NewClient("passthrough:///"+r.IngressAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), wire.ServiceHeader, "two")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := healthpb.NewHealthClient(conn)
	if got, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("gRPC: %v, %v", got, err)
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "none"}); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("gRPC's own error, in its trailers: %v", err)
	}
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("gRPC stream: %v, %v", got, err)
	}
}

func TestServicesOfOneWorkerShareItsConnections(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay("r1", false)
	var services []advertise.Service
	for n := range 20 {
		services = append(services, serve(t, fmt.Sprint("s", n), advertise.HTTP1, func(http.ResponseWriter, *http.Request) {}))
	}
	f.worker("w1", services...)
	r.settled(t, "s19", 1)
	links := func(states ...string) (sum float64) {
		for _, state := range states {
			n, _ := metricOf(t, r.registry, "ringway_peering_links", state)
			sum += n
		}
		return sum
	}
	procs.Await(t, "a connection is open", func() bool { return links("open") > 0 })
	if n := links("waiting", "opening", "open", "spare", "draining"); n != 1 {
		t.Errorf("%v links to one sidecar with 20 services", n)
	}
}

// watched is a listener that counts who comes.
func watched(t testing.TB) (address string, came *atomic.Int64) {
	t.Helper()
	ln := procs.Listen(t)
	came = new(atomic.Int64)
	procs.Accept(t, ln, func(net.Conn) { came.Add(1) })
	return ln.Addr().String(), came
}

func TestARelayWithoutACertificateSendsASecuredEndpointNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay("r1", true)
	address, came := watched(t)
	secured := []advertise.Service{{Name: "a", Address: address, Secured: true}, {Name: "b", Address: address, Secured: true}}
	f.member("w1", true, secured...)
	f.member("w2", true, secured...)
	r.settled(t, "a", 2)
	r.settled(t, "b", 2)
	for _, service := range []string{"a", "b"} {
		if resp, body := answer(t, clients(t)["http/1.1"], r.request(t, "GET", service, "/", nil)); resp.StatusCode != 503 || !strings.Contains(body, "no_endpoint") {
			t.Errorf("%s %s", resp.Status, body)
		}
	}
	if n := came.Load(); n != 0 {
		t.Errorf("%d connections to a secured endpoint", n)
	}
	if n, _ := metricOf(t, r.registry, "ringway_relay_endpoints_left_out_total", "no_certificate"); n < 4 {
		t.Errorf("%v endpoints are counted as left out, want 2 of 2 services", n)
	}
	if n := r.log.Lines("no certificate"); n != 1 {
		t.Errorf("%d lines say so, want 1:\n%s", n, r.log)
	}
}

func TestARelayWithACertificateReachesServicesDirectlyWhereSettingsAllowIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay("r1", false)
	f.member("w1", false, serve(t, "direct", "", func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil || r.Header.Get(wire.ServiceHeader) != "" {
			t.Errorf("%v %v", r.TLS, r.Header)
		}
		w.Header().Set(wire.FailedHeader, wire.FailedUnsent) // only a sidecar's word counts
		w.WriteHeader(http.StatusBadGateway)
	}))
	f.member("w2", false, serve(t, "untold", "", func(http.ResponseWriter, *http.Request) { t.Error("a request came in clear text") }))
	r.settled(t, "direct", 1)
	r.settled(t, "untold", 1)
	if resp, _ := answer(t, clients(t)["http/1.1"], r.request(t, "POST", "untold", "/", strings.NewReader("x"))); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("untold: %s", resp.Status)
	}
	resp, _ := answer(t, clients(t)["http/1.1"], r.request(t, "GET", "direct", "/", nil))
	if resp.StatusCode != http.StatusBadGateway || resp.Header.Get(wire.EndpointHeader) != "w1" || resp.Header.Get(wire.AttemptsHeader) != "1" || resp.Header.Get(wire.FailedHeader) != "" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
}

// A record can claim anything; the certificate at its address cannot.
func TestARelaySendsNothingToAnotherWorkerThanThatOfTheRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay("r1", false)
	var served atomic.Int64
	echo := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) { served.Add(1) })
	s := start(t, func(c *Config) { c.Identity = source(t, f.authority, claims(identity.RoleWorker, "w1")) }, echo)
	f.member("w2", false, fronted(s, echo)...)
	r.settled(t, "echo", 1)
	resp, body := answer(t, clients(t)["http/1.1"], r.request(t, "POST", "echo", "/", strings.NewReader("x")))
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "node mismatch") || served.Load() != 0 {
		t.Errorf("%s %s; %d requests were served", resp.Status, body, served.Load())
	}
}

// A relay that is not affine forwards; the relay that is speaks to the sidecar.
func TestAForwardedRequestReachesTheSidecar(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.skips = []string{"echo=r1"}
	relays := []*front{f.relay("r1", false), f.relay("r2", false)}
	f.worker("w1", serve(t, "echo", "", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	for _, r := range relays {
		r.settled(t, "echo", 1)
		for protocol, client := range clients(t) {
			if resp, body := answer(t, client, r.request(t, "POST", "echo", "/", strings.NewReader("hello"))); resp.StatusCode != 200 || body != "hello" {
				t.Errorf("%s: %s %q", protocol, resp.Status, body)
			}
		}
	}
}
