package relay

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// publisher is a member that publishes what it is given, without the checks of an agent or a relay.
func (f *fleet) publisher(id string, role identity.Role) *advertise.Catalogue {
	f.t.Helper()
	cfg := membership.Config{Cluster: "test", Environment: "ci", ID: id, Role: role, BindAddr: anyPort, Seeds: f.seeds(),
		Datacenter: strings.Repeat("d", 63), Region: strings.Repeat("r", 63)}
	node, err := membership.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = node.Close() })
	catalogue, err := advertise.New(advertise.Config{Gossip: node, Interval: time.Second, PublishInterval: 50 * time.Millisecond})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := node.Start(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	f.run(catalogue)
	return catalogue
}

// TestNoValueOfARecordStopsTheRequestsToAnotherService has a worker offer each extreme value that
// a record may have, each for a service of which it is the only worker, so that its votes win.
// Values beyond these are refused with the record.
func TestNoValueOfARecordStopsTheRequestsToAnotherService(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	sent, stop := r.keepAsking(t)
	defer stop()

	address, digits := refusing(t), strings.Repeat("9", 64)
	port := address[strings.LastIndexByte(address, ':')+1:]
	var services []advertise.Service
	add := func(s advertise.Service) {
		if s.Name == "" {
			s.Name = fmt.Sprint("x", len(services))
		}
		if s.Address == "" {
			s.Address = address
		}
		services = append(services, s)
	}
	for _, name := range []string{strings.Repeat("n", 63), "0", "A..-_", "constructor"} {
		add(advertise.Service{Name: name})
	}
	for _, a := range []string{
		"0.0.0.0:" + port, "[::]:" + port, "[::1]:" + port, "[::ffff:127.0.0.1]:" + port, "[fe80::1%lo]:" + port, "[fe80::1%" + strings.Repeat("z", 240) + "]:1",
		"255.255.255.255:65535", "224.0.0.1:1", "[ff02::1]:1", "127.0.0.1:00000000001", strings.Repeat("h", 255) + ":65535", "..:1", "%:1",
		r.IngressAddr(), r.AdminAddr(), r.GossipAddr(),
	} {
		add(advertise.Service{Address: a})
	}
	for _, p := range []advertise.Protocol{advertise.H2C, advertise.H2, advertise.TCP} {
		add(advertise.Service{Protocol: p})
		add(advertise.Service{Protocol: p, Secured: true})
	}
	add(advertise.Service{Protocol: advertise.TCP, ProxyProtocol: true})
	add(advertise.Service{Secured: true})
	add(advertise.Service{State: advertise.Draining, Selection: "slots", Policy: "retry=never"})
	add(advertise.Service{Weight: 1, Slots: 1, Relays: 1})
	add(advertise.Service{Weight: 100, Slots: math.MaxInt32, Relays: advertise.MaxRelays})
	for _, version := range []string{digits, "v" + digits[1:], strings.Repeat("-", 64), "0", "+", strings.Repeat("1.", 32)} {
		add(advertise.Service{Version: version, Selection: "slots"})
	}
	add(advertise.Service{Tags: strings.Split(strings.Repeat(strings.Repeat("~", 64)+" ", 15)+"~", " ")})
	for _, selection := range []string{
		"slots;vnodes=64;samples=8;maxscan=256;jitter=64;fresh=1ns", "slots;vnodes=1;samples=1;maxscan=1;jitter=0;fresh=2562047h47m16s",
		"slots;vnodes=" + digits, "slots;fresh=" + digits + "h", "slots;vnodes=-1;samples=0",
		"stable;bound=100", "stable;bound=1.0000000000000002", "stable;bound=0", "stable;bound=NaN", "stable;bound=1e999", "stable-sha256",
		"closest;expiry=1s;timeout=1ns", "farthest;expiry=2562047h47m16s;timeout=2562047h47m16s", "closest;expiry=1ns;timeout=1ns",
		"ordered;preferred=" + strings.Repeat("w,", 110), "manual;preferred=nowhere", "manual;preferred=bad", "ordered", "random",
		strings.Repeat(";", 256), strings.Repeat("s", 256), "=;=", "p2c;x=1",
	} {
		add(advertise.Service{Selection: selection})
	}
	for _, policy := range []string{
		"request-timeout=1ns", "request-timeout=2562047h47m16s", "attempt-timeout=1ms;progress-timeout=1ms", "retry=always;request-timeout=24h",
		"session-cookie=" + strings.Repeat("c", 200), "session-cookie=;", "retry=" + digits, strings.Repeat(";", 256), strings.Repeat("=", 256), "unknown=1",
	} {
		add(advertise.Service{Policy: policy})
	}
	if err := f.publisher("bad", identity.RoleWorker).Offer(services); err != nil {
		t.Fatal(err)
	}
	r.await(t, "all services", func() bool {
		for _, s := range services {
			if s, ok := r.Routes.Service(s.Name); !ok || s.Route().Plan == nil && s.Route().Endpoints == nil {
				return false
			}
		}
		return true
	})

	for _, s := range services {
		for _, path := range []string{"", "/plan", "/explain", "/explain?worker=bad", "/route?key=k", "/rebalance"} {
			if status, text := r.api(t, "/api/v1/services/"+s.Name+path, nil); !slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable}, status) {
				t.Errorf("%s of %+v: %d %s", path, s, status, text)
			}
		}
		if s.Selection != "" || s.Policy != "" || s.Version != "" { // the others go to the same kind of endpoint
			if resp, text := r.call(t, http.MethodGet, "/", nil, wire.ServiceHeader+": "+s.Name, "Ringway-Key: k"); resp.StatusCode < 500 {
				t.Errorf("a request to %+v: %d %s", s, resp.StatusCode, text)
			}
		}
	}
	for _, path := range []string{"/api/v1/services", "/api/v1/fleet?window=200ms", "/", "/?service=x38", "/api/v1/check", "/api/v1/traffic", "/metrics", "/readyz"} {
		if status, text := r.api(t, path, nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	before := sent.Load()
	r.await(t, "more answers", func() bool { return t.Failed() || sent.Load() > before+50 })
	if n := r.metric(t, `ringway_relay_route_updates_total{result="failed"}`); n != "0" || strings.Contains(r.log.String(), "panic") {
		t.Errorf("%s failed routes\n%s", n, r.log)
	}
	selections, policies := 0, 0
	for _, s := range services {
		if _, err := strategy.Parse(s.Selection); err != nil {
			selections++
		}
		if _, err := advertise.ParsePolicy(s.Policy); err != nil {
			policies++
		}
	}
	for series, want := range map[string]int{"selection": selections, "policy": policies} {
		if n := r.metric(t, "ringway_relay_"+series+`_problems_total{reason="invalid"}`); n != strconv.Itoa(want) || want < 7 {
			t.Errorf("%s invalid values of %s are counted, want %d", n, series, want)
		}
	}
}

// TestNoStatementOfARelayStopsTheRequests has another relay state each extreme that a record may have.
// It has no address to forward to, so it has no place in plans. That its settings win within their
// bounds is what relays agree on.
func TestNoStatementOfARelayStopsTheRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	sent, stop := r.keepAsking(t)
	defer stop()
	bad := f.publisher("bad", identity.RoleRelay)

	var statements []advertise.RelayStatement
	traffic := func(of ...advertise.Traffic) { statements = append(statements, advertise.RelayStatement{Traffic: of}) } // sorted by service
	traffic(advertise.Traffic{Service: "echo", Rate: advertise.MaxTrafficRate})
	traffic(advertise.Traffic{Service: "constructor", Rate: advertise.MaxTrafficRate}, advertise.Traffic{Service: "echo"}, advertise.Traffic{Service: strings.Repeat("n", 63), Rate: 1})
	var many []advertise.Traffic
	for i := range advertise.MaxTraffic {
		many = append(many, advertise.Traffic{Service: fmt.Sprintf("x%02d", i), Rate: advertise.MaxTrafficRate})
	}
	traffic(many...)
	plan := func(version uint64, author, body string) {
		statements = append(statements, advertise.RelayStatement{Plan: advertise.PlanSettings{Version: version, Author: author, Body: body}})
	}
	for _, body := range []string{
		"", "%", "=", strings.Repeat("&", advertise.MaxPlanBody), strings.Repeat("9", advertise.MaxPlanBody), "colour=blue",
		"zone-slack=1e308", "zone-slack=NaN", "strategy=rendezvous&index-source=slot", "strategy=none",
		"relays-per-service=1&max-relays-per-service=1", "relays-per-service=1024&max-relays-per-service=1", "relays-per-service=-1",
		"skip-relay=" + strings.Repeat("n", 63) + "%3D" + strings.Repeat("r", 63), strings.Repeat("skip-relay=x%3Dr1&", 200), "skip-relay=echo",
	} {
		plan(routing.MaxPlanVersion, "", body)
	}
	for _, version := range []uint64{0, 1, routing.MaxPlanVersion + 1, math.MaxUint64} {
		plan(version, strings.Repeat("a", advertise.MaxNodeIDBytes), "zone-slack=2")
	}
	for i := range statements {
		s := &statements[i]
		if err := bad.State(*s); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		r.await(t, fmt.Sprintf("statement %d", i), func() bool {
			got := r.Catalogue.View().Relays().Of("bad")
			return t.Failed() || got != nil && got.Plan == s.Plan && slices.Equal(got.Traffic, s.Traffic)
		})
		before := sent.Load()
		r.await(t, "more answers", func() bool { return t.Failed() || sent.Load() > before+3 })
	}
	if n := r.metric(t, `ringway_relay_route_updates_total{result="failed"}`); n != "0" || strings.Contains(r.log.String(), "panic") {
		t.Errorf("%s failed routes\n%s", n, r.log)
	}
	for _, path := range []string{"/api/v1/services/echo/plan", "/api/v1/services/echo/explain", "/api/v1/plan", "/api/v1/check", "/api/v1/traffic", "/metrics", "/readyz"} {
		if status, text := r.api(t, path, nil); status != http.StatusOK && status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
