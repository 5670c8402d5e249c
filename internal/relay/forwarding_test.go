package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// gateOf starts n relays, a worker of echo and a gate, and waits until the gate
// forwards to three primaries with backups behind them.
func gateOf(t *testing.T, f *fleet, n, backups int) *runningRelay {
	t.Helper()
	for range n {
		f.relay(func(*Settings) {})
	}
	gate := f.relay(func(s *Settings) { s.Role, s.Forwarding.Primaries = identity.RoleGate, 3 })
	f.echo("w1")
	t.Cleanup(func() {
		for _, r := range f.relays {
			for line := range strings.Lines(r.log.String()) {
				if t.Failed() && strings.Contains(line, "request failed") {
					t.Log(r.id, line)
				}
			}
		}
	})
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
		r.await(t, "all members", func() bool { return len(r.members.Snapshot().Members()) == n+2 })
	}
	gate.await(t, "primaries and backups", func() bool {
		d := gate.forwarding(t)
		return len(d.AffineRelays) == n && d.Forwarding != nil && len(d.Forwarding.Primaries) == 3 && len(d.Forwarding.Backups) == backups
	})
	return gate
}

// forwarding is what the relay reports about echo.
func (r *runningRelay) forwarding(t *testing.T) (d api.Service) {
	t.Helper()
	r.api(t, "/api/v1/services/echo", &d)
	return d
}

func (f *fleet) find(id string) *runningRelay {
	return f.relays[slices.IndexFunc(f.relays, func(r *runningRelay) bool { return r.id == id })]
}

// keepAsking sends requests from several clients until stopped. Every one must be
// answered by the worker.
func (r *runningRelay) keepAsking(t *testing.T) (sent *atomic.Int64, stop func()) {
	t.Helper()
	sent = &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.Background())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				// Not with ctx: each is to be answered.
				req, _ := http.NewRequest(http.MethodGet, "http://"+r.IngressAddr()+"/", nil)
				req.Header.Set(wire.ServiceHeader, "echo")
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("request %d: %v", sent.Load(), err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || string(body) != "w1" {
					t.Errorf("request %d: %d %s, %v", sent.Load(), resp.StatusCode, body, err)
					return
				}
				sent.Add(1)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); clients.Wait(); client.CloseIdleConnections() })
	t.Cleanup(stop)
	return sent, stop
}

func TestAGateLosesNoRequestWhenARelayDiesOrLeavesAndABackupIsPromoted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	gate := gateOf(t, f, 7, 2)
	sent, stop := gate.keepAsking(t)
	more := func() func() bool {
		before := sent.Load()
		return func() bool { return t.Failed() || sent.Load() >= before+50 }
	}
	gate.await(t, "load", more())

	before := gate.forwarding(t).Forwarding
	victim, heir := before.Primaries[1], before.Backups[0]
	_ = f.find(victim).peer.server.Close() // gossip continues: no member is notified
	gate.await(t, heir+" in the place of "+victim, func() bool {
		now := gate.forwarding(t).Forwarding
		return t.Failed() || slices.Contains(now.Primaries, heir) && !slices.Contains(now.Primaries, victim)
	})
	gate.await(t, "the place of the backup to be filled", func() bool {
		now := gate.forwarding(t).Forwarding
		return t.Failed() || len(now.Primaries) == 3 && len(now.Backups) == 2 && !slices.Contains(slices.Concat(now.Primaries, now.Backups), victim)
	})
	gate.await(t, "more load", more())

	leaver := gate.forwarding(t).Forwarding.Primaries[0]
	if err := f.find(leaver).stop(); err != nil {
		t.Fatal(err)
	}
	gate.await(t, leaver+" to be no peer any more", func() bool {
		return t.Failed() || !slices.ContainsFunc(gate.forwarding(t).Peers, func(p api.Peer) bool { return p.Node == leaver })
	})
	gate.await(t, "more load", more())
	stop()

	line := regexp.MustCompile(`level=(INFO|WARN) msg="relay to forward to: evicted" service=echo relay=` + victim + ` role=primary reason=[a-z_]+ detail="`)
	if !line.MatchString(gate.log.String()) {
		t.Errorf("not in the log: %v", line)
	}
	_, metrics := gate.api(t, "/metrics", nil)
	for _, line := range []string{"ringway_pool_promotions_total 0\n", `ringway_pool_evictions_total{reason="lost"} 0` + "\n", `ringway_pool_evictions_total{reason="removed"} 0` + "\n"} {
		if strings.Contains(metrics, line) {
			t.Errorf("the metrics say %s", line)
		}
	}
	for _, p := range gate.forwarding(t).Peers {
		if p.Node == victim && (p.Role == "primary" || p.LastReason == "" && p.State == "evicted") {
			t.Errorf("of the dead one: %+v", p)
		}
	}
}

// Of a gate and the relay behind it, the gate talks to the client.
func TestRouteHeadersOfARelayReachTheClientOnlyIfTheGateExposesThem(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.relay(func(s *Settings) { s.Requests.ExposeRouteHeaders = true })
	closed := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	open := f.relay(func(s *Settings) { s.Role, s.Requests.ExposeRouteHeaders = identity.RoleGate, true })
	f.worker("w1", advertise.Service{Name: "dead", Address: refusing(t)})
	for _, gate := range []*runningRelay{closed, open} {
		gate.settled(t, "dead", 1)
		gate.await(t, "an answer of the relay", func() bool {
			resp, body := gate.call(t, "GET", "/", nil, "Ringway-Service: dead")
			return resp.StatusCode == 502 && strings.Contains(body, "upstream_failed")
		})
		resp, body := gate.call(t, "GET", "/", nil, "Ringway-Service: dead")
		if got := strings.Contains(body, "w1") && strings.Contains(body, "127.0.0.1"); got != (gate == open) || got != (resp.Header.Get(wire.RelayHeader) != "") {
			t.Errorf("%s exposes %v: %v %s", gate.id, gate == open, resp.Header, body)
		}
		if gate == closed && (len(decode(t, body).Attempts) > 0 || strings.Contains(body, "127.0.0.1")) {
			t.Errorf("the answer of the gate has details: %s", body)
		}
	}
}

func TestAGateShowsItsPrimariesTakingTurnsAndAKeyStaysWithOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	gate := gateOf(t, f, 5, 2)
	const requests = 31
	roles := func(d api.Service) (all []string) {
		for _, p := range d.Peers {
			all = append(all, p.Node+" "+p.Role)
		}
		return all
	}
	var before, d api.Service
	// On a busy machine a relay may lose its place for being slow. Then the turns began
	// anew, and another round is needed.
	gate.await(t, "a round in which the roles stay", func() bool {
		before = gate.forwarding(t)
		for range requests {
			if resp, body := gate.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
		}
		d = gate.forwarding(t)
		return slices.Equal(roles(before), roles(d))
	})
	byRole := map[string]int{}
	for i, p := range d.Peers {
		byRole[p.Role]++
		want := map[string]uint64{"primary": requests / 3}[p.Role]
		got := p.Requests - before.Peers[i].Requests
		if got < want || got > want+1 || p.Role == "backup" && got > 0 {
			t.Errorf("%s, a %s, got %d of %d requests", p.Node, p.Role, got, requests)
		}
		wantHealth := "healthy"
		if p.Requests == 0 {
			wantHealth = "unknown"
		}
		if p.Health != wantHealth || p.Tier != "global" || !p.Connected {
			t.Errorf("%+v", p)
		}
	}
	if got := fmt.Sprint(byRole); got != "map[backup:2 primary:3]" {
		t.Error(got)
	}

	for range 6 {
		gate.call(t, "GET", "/", nil, "Ringway-Service: echo", "Ringway-Key: session-7")
	}
	var grown []uint64
	now := gate.forwarding(t)
	for i, p := range now.Peers {
		if p.Requests > d.Peers[i].Requests {
			grown = append(grown, p.Requests-d.Peers[i].Requests)
		}
	}
	if !slices.Equal(grown, []uint64{6}) || now.Forwarding.Bindings != 1 {
		t.Errorf("six requests with one key went to relays %v, %d bindings", grown, now.Forwarding.Bindings)
	}
}

// The first relay translates the failure of the second one, which has the worker.
func TestACallThatFailsAtAnotherRelayGetsAStatusOfGRPC(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(broken.Close)
	f.worker("w1", service("echo", broken))
	r.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	for _, first := range []*runningRelay{r, gate} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+first.IngressAddr()+"/svc/Method", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ServiceHeader, "echo")
		req.Header.Set("Content-Type", "application/grpc")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != "14" || resp.Header.Get("Grpc-Message") == "" || len(body) > 0 || resp.Header.Get(wire.FailedHeader) != "" {
			t.Errorf("%s: %d %v %s", first.id, resp.StatusCode, resp.Header, body)
		}
	}
}

func TestAServiceThatAnswers421IsAskedOnceThroughAGate(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	var asked atomic.Int64
	strict := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusMisdirectedRequest)
	}))
	t.Cleanup(strict.Close)
	f.worker("w1", service("echo", strict))
	r.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	for _, first := range []*runningRelay{r, gate} {
		asked.Store(0)
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+first.IngressAddr()+"/", strings.NewReader("an order"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ServiceHeader, "echo")
		if resp, body := do(t, req); resp.StatusCode != http.StatusMisdirectedRequest || asked.Load() != 1 {
			t.Errorf("%s: %s %q, and the service was asked %d times", first.id, resp.Status, body, asked.Load())
		}
	}
}

// refusePeers closes the listener for other relays. The returned function opens it again at
// the same address.
func (r *runningRelay) refusePeers(t *testing.T) (accept func()) {
	t.Helper()
	_ = r.peer.server.Close()
	return func() {
		t.Helper()
		socket, err := net.Listen("tcp", r.PeerAddr())
		if err != nil {
			t.Fatal(err)
		}
		server := &listener{name: "peer", socket: socket}
		server.serveClients(&r.cfg, newConnMetrics(prometheus.NewRegistry()), downstream.Config{Handler: r.withFacts(&r.peerFront)})
		done := make(chan struct{})
		go func() { defer close(done); _ = server.server.Serve(socket) }()
		t.Cleanup(func() { _ = server.server.Close(); <-done })
	}
}

func TestADeadlineThatEndsWhileNoRelayIsConnectedIsATimeout(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	f.echo("w1")
	r.settled(t, "echo", 1)
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	_ = r.peer.server.Close()
	gate.await(t, "that it is lost", func() bool { return len(gate.forwarding(t).Forwarding.Primaries) == 0 })
	resp, body := gate.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo", "Ringway-Timeout: 20")
	if e := decode(t, body); resp.StatusCode != http.StatusGatewayTimeout || e.Code != "timeout" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A relay refuses the gate for some time and works again. Then the other relays stop in
// order, and it is the only one.
func TestAGateLosesNoRequestWhenTheOnlyRelayLeftHasRefusedConnections(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " relays"), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for range n { // one of them binds its address twice
				f.relay(func(s *Settings) { s.PeerAddr = procs.FreeAddr(t) })
			}
			gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
			f.echo("w1")
			for _, r := range f.relays {
				r.settled(t, "echo", 1)
			}
			gate.await(t, "all primaries", func() bool {
				d := gate.forwarding(t)
				return d.Forwarding != nil && len(d.Forwarding.Primaries) == n
			})
			refused := f.relays[0]
			of := func() api.Peer {
				peers := gate.forwarding(t).Peers
				return peers[slices.IndexFunc(peers, func(p api.Peer) bool { return p.Node == refused.id })]
			}
			sent, stop := gate.keepAsking(t)
			accept := refused.refusePeers(t)
			gate.await(t, "an eviction", func() bool { return t.Failed() || of().State == "evicted" })
			accept()
			for _, r := range f.relays[1:n] {
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
			}
			before := sent.Load()
			gate.await(t, "requests", func() bool { return t.Failed() || sent.Load() >= before+50 })
			stop()
		})
	}
}
