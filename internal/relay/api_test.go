package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
)

// Four relays and four workers: every relay connects to three of them.
func TestThePlanAndItsExplanationShowConnectionsAndAbsentMembers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 4 {
		f.relay(func(s *Settings) {
			s.Links.Slack, s.Links.DrainDelay, s.Links.Grace, s.Plans.Minimums.PeersPerRelay = 0, 0, time.Hour, 1
		})
	}
	stop := map[string]func() error{}
	for i := range 4 {
		id := fmt.Sprintf("w%d", i+1)
		stop[id], _ = f.echo(id)
	}
	r := f.relays[0]
	r.settled(t, "echo", 4)
	plan := func() (a api.Plan) {
		if status, text := r.api(t, "/api/v1/services/echo/plan", &a); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		return a
	}
	explain := func(worker string) (a api.Explanation) {
		if status, text := r.api(t, "/api/v1/services/echo/explain?worker="+worker, &a); status != 200 || a.Worker == nil {
			t.Fatalf("%d %s", status, text)
		}
		return a
	}
	r.await(t, "all relays in the plan", func() bool { return len(plan().Relays) == 4 })

	p := plan()
	if p.Strategy != affinity.Projection || p.IndexSource != affinity.IndexSlot || p.Fallback != "" || p.Connections != 12 ||
		p.Coverage != (api.Coverage{RelaysPerWorker: api.MinMax{Min: 3, Max: 3}, WorkersPerRelay: api.MinMax{Min: 3, Max: 3}}) || len(p.Absent.Relays)+len(p.Absent.Workers) != 0 {
		t.Errorf("%+v", p)
	}
	own := p.Relays[slices.IndexFunc(p.Relays, func(p api.PlannedRelay) bool { return p.Relay == "r1" })]
	inRange := 0
	for id := range stop {
		has := slices.ContainsFunc(own.Workers, func(w api.PlannedWorker) bool { return w.Worker == id })
		link, connected := "none", false
		if has {
			link, connected = "open", true
			inRange++
		}
		r.await(t, fmt.Sprintf("%s with its link %s", id, link), func() bool {
			x := explain(id).Worker
			return x.Link == link && x.Connected == connected
		})
		a := explain(id)
		x := a.Worker
		if a.Role != "affine" || a.Index != own.Index || a.Range != own.Range || !strings.Contains(a.Reason, "one of the 4 relays") ||
			!strings.Contains(a.Drawing, "> r1") || !strings.Contains(a.Drawing, "^ "+id) {
			t.Errorf("%+v", a)
		}
		if x.InRange != has || x.Offer != "ready" || x.Ring != 4 || x.Tier != "global" || x.Group != "home" || x.Address == "" ||
			has != (x.Distance == 0) || has != (x.Weight > 0) || has != (x.Balancer == "active") || !strings.Contains(x.Reason, "the range "+own.Range+" of r1") {
			t.Errorf("%s, to be connected: %v: %+v", id, has, x)
		}
	}
	if inRange != 3 {
		t.Errorf("%d workers in range, want 3", inRange)
	}

	// Who vanishes keeps its place, and is not counted.
	if err := stop["w1"](); err != nil {
		t.Fatal(err)
	}
	r.await(t, "w1 absent", func() bool { return slices.Equal(plan().Absent.Workers, []string{"w1"}) })
	p = plan()
	if _, counted := p.RelaysPerWorker["w1"]; counted || p.Connections != 9 || p.Coverage.RelaysPerWorker != (api.MinMax{Min: 3, Max: 3}) || p.Coverage.WorkersPerRelay != (api.MinMax{Min: 2, Max: 3}) {
		t.Errorf("without w1: %+v", p)
	}
	for _, relay := range p.Relays {
		for _, w := range relay.Workers {
			if w.Absent != (w.Worker == "w1") {
				t.Errorf("%+v in the range of %s", w, relay.Relay)
			}
		}
	}
	if x := explain("w1").Worker; x.Offer != "absent" || x.Link != "none" || x.Connected || x.Position < 0 {
		t.Errorf("w1: %+v", x)
	}
}

func TestARelayThatForwardsReportsTheReasonAndAnAbsentRelayIsNotCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 3 {
		f.relay(func(s *Settings) { s.Links.Grace = time.Hour; s.SkipRelays.Set("echo=r1") })
	}
	f.echo("w1")
	r := f.relays[0]
	r.settled(t, "echo", 1)
	var p api.Plan
	absent := func(want ...string) func() bool {
		return func() bool {
			p = api.Plan{}
			status, _ := r.api(t, "/api/v1/services/echo/plan", &p)
			return status == 200 && len(p.Relays) == 2 && slices.Equal(p.Absent.Relays, want)
		}
	}
	r.await(t, "two relays", absent([]string{}...))
	var a api.Explanation
	if r.api(t, "/api/v1/services/echo/explain", &a); a.Role != "forwarding" || a.Index != -1 || a.Drawing != "" || a.Range != "" || a.Worker != nil ||
		!strings.Contains(a.Reason, "r1 does not serve echo: it is on the skip list") {
		t.Errorf("%+v", a)
	}
	if x := a.Plan; x == nil || x.PeersPerWorker != 3 || x.PeersPerRelay != 3 || x.Workers != 1 || x.Relays != 2 || x.Ratio != 0.5 || x.Length != 0 || time.Since(x.Computed) > time.Hour {
		t.Errorf("the plan rests on %+v", x)
	}
	if err := f.relays[1].stop(); err != nil {
		t.Fatal(err)
	}
	r.await(t, "r2 absent", absent("r2"))
	if p.RelaysPerWorker["w1"] != 1 || p.Connections != 1 || p.Coverage.WorkersPerRelay != (api.MinMax{Min: 1, Max: 1}) || p.Relays[slices.IndexFunc(p.Relays, func(p api.PlannedRelay) bool { return p.Relay == "r2" })].Absent != true {
		t.Errorf("%+v", p)
	}
}

func TestAnImpossibleExplanationHasItsStatus(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.worker("w1", advertise.Service{Name: "echo", Address: refusing(t), State: advertise.Draining})
	r.settled(t, "echo", 1)
	for path, want := range map[string]int{
		"echo/plan": 503, "absent/plan": 404, "absent/explain": 404, "echo/explain?worker=w9": 404,
		"echo/explain": 200, "echo/explain?worker=w1": 200,
	} {
		var answer struct{ Error, Reason string }
		status, text := r.api(t, "/api/v1/services/"+path, &answer)
		if status != want || answer.Error == "" && !strings.Contains(answer.Reason, "nothing to plan") {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
	}
	f.worker("w2") // as one whose checks fail
	r.await(t, "w2", func() bool { _, there := r.Fleet.Snapshot().Get("w2"); return there })
	for path, want := range map[string]string{
		"echo/explain?worker=w9": "r1 does not see it; `worker health --ready`", "absent/explain?worker=w9": "r1 does not see it", "echo/explain?worker=r1": "it is a relay",
		"echo/explain?worker=w2": "it is in the fleet; `worker services`", "absent/explain?worker=w2": "it is in the fleet; `worker services`", "absent/explain": "if a worker should, `worker services`",
	} {
		if _, text := r.api(t, "/api/v1/services/"+path, nil); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %q", path, text, want)
		}
	}
	report, err := r.Check(t.Context())
	if err != nil || !slices.ContainsFunc(report.Findings, func(one api.Finding) bool { return one.Text == "no service is offered by 1 of 2 workers: w2" }) {
		t.Errorf("%v %+v", err, report)
	}
	var a api.Explanation
	if r.api(t, "/api/v1/services/echo/explain?worker=w1", &a); a.Worker == nil || a.Worker.Offer != "draining" || a.Worker.InRange || a.Worker.Position != -1 {
		t.Errorf("%+v", a.Worker)
	}
}

func TestAWorkerOfAnOlderVersionIsExplained(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	backend := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(backend.Close)
	for id, version := range map[string]string{"w1": "v1.9", "w2": "v1.10", "w3": "v1.10"} {
		f.worker(id, advertise.Service{Name: "echo", Address: backend.Listener.Addr().String(), Version: version, Slots: 4, Selection: "slots"})
	}
	var a api.Explanation
	r.await(t, "the older one is out of the plan", func() bool {
		a = api.Explanation{}
		r.api(t, "/api/v1/services/echo/explain?worker=w1", &a)
		return a.Worker != nil && strings.Contains(a.Worker.Reason, `uses only version "v1.10"`)
	})
	if x := a.Worker; x.InRange || x.Offer != "ready" || x.Reason != `strategy slots uses only version "v1.10" of echo, the highest that more than half of the workers have or exceed, and w1 offers version "v1.9"` {
		t.Errorf("%+v", x)
	}
	var s api.Service
	if r.api(t, "/api/v1/services/echo", &s); len(s.Peers) != 2 || s.Peers[0].Node == "w1" || s.Peers[1].Node == "w1" || s.Peers[0].Limit != 4 || s.Endpoints != 3 {
		t.Errorf("%+v", s)
	}
	service, _ := r.Routes.Service("echo")
	if ring := newRing(service.Route(), "r1"); len(ring.Workers) != 2 || ring.Workers[0].ID == "w1" || ring.Workers[1].ID == "w1" {
		t.Errorf("%+v", ring)
	}
}

// A service whose workers are all gone is served by no relay and forwarded to none.
func TestAServiceWithoutEndpointsIsNotForwarded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	stop, _ := f.echo("w1")
	r.settled(t, "echo", 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.await(t, "no endpoint", func() bool {
		s, known := r.Routes.Service("echo")
		return known && len(s.Route().Endpoints) == 0
	})
	var listed api.Services
	var route api.Route
	r.api(t, "/api/v1/services", &listed)
	r.api(t, "/api/v1/services/echo/route", &route)
	if len(listed.Services) != 1 || listed.Services[0].Role != "none" || route.Role != "none" {
		t.Errorf("%+v, %+v", listed, route)
	}
}

func TestThePlanAfterAChangeIsComparedWithThePresentOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 4 {
		f.relay(func(*Settings) {})
	}
	for i := range 8 {
		f.echo(fmt.Sprintf("w%d", i))
	}
	_, backend := f.echo("w8")
	other := service("other", backend)
	other.Relays = 3
	f.worker("w9", other)
	r := f.relays[0]
	r.settled(t, "echo", 9)
	r.settled(t, "other", 1)
	ask := func(path string) (a api.PlanChange) {
		t.Helper()
		if status, text := r.api(t, "/api/v1/"+path, &a); status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		return a
	}
	var plan api.Plan
	r.await(t, "all members in the plan", func() bool {
		plan = api.Plan{}
		status, _ := r.api(t, "/api/v1/services/echo/plan", &plan)
		s, _ := r.Routes.Service("other")
		return status == http.StatusOK && len(plan.Relays) == 4 && plan.Connections == 27 && s.Route().Plan != nil && len(s.Route().Plan.Affine()) == 3
	})
	same := ask("services/echo/plan?what-if=")
	if same.Service != "echo" || same.Services != 1 || same.Opened != 0 || same.Closed != 0 || same.Now != same.Then || same.Now.Connections != plan.Connections || same.Now.Relays != 4 || same.Now.Workers != 9 || same.Now.HopShare != 0 {
		t.Errorf("%+v", same)
	}
	if a := ask("services/echo/plan?what-if=" + url.QueryEscape("m=4,workers=-1")); a.Change != "m=4,workers=-1" || a.Now != same.Now || a.Then.Connections != 32 || a.Then.Workers != 8 || a.Then.PeersPerWorker != 4 || a.Opened-a.Closed != 5 || a.MostOpened == 0 || a.MostOpenedBy == "" {
		t.Errorf("%+v", a)
	}
	// Three of four relays serve the other service, as its worker asks for.
	if a := ask("plan?what-if=" + url.QueryEscape("relays=+1")); a.Service != "" || a.Services != 2 || a.Now.Connections != 30 || a.Now.Workers != 10 || a.Now.RelaysPerService != 3.5 || a.Now.HopShare != 0.125 || a.Then.Relays != 5 || a.Then.Connections != 30 {
		t.Errorf("%+v", a)
	}
	for path, want := range map[string]string{
		"services/echo/plan?what-if=m%3D2":       "3 to 2000",
		"services/echo/plan?what-if=relays%3D-4": "that makes 0 of 4",
		"plan?what-if=skip%3Dr44":                "did you mean r4?",
	} {
		if status, text := r.api(t, "/api/v1/"+path, nil); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := r.api(t, "/api/v1/services/Ecoh", nil); status != http.StatusNotFound || !strings.Contains(text, "did you mean echo?") {
		t.Errorf("a misspelt service: %d %s", status, text)
	}
	if status, _ := r.api(t, "/api/v1/services/absent/plan?what-if=m%3D4", nil); status != http.StatusNotFound {
		t.Errorf("a service that is not there: %d", status)
	}
}

func TestTheAdminAPIShowsWhatTheRelayDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	f.echo("w2")
	r.settled(t, "echo", 2)
	r.call(t, "GET", "/", nil, "Ringway-Service: echo")

	var d api.Service
	r.await(t, "a connection to each worker", func() bool {
		d = api.Service{}
		r.api(t, "/api/v1/services/echo", &d)
		return len(d.Peers) == 2 && d.Peers[0].Connected && d.Peers[1].Connected
	})
	if status, _ := r.api(t, "/api/v1/services/echo", &d); status != 200 || d.Role != "affine" || d.Index != 0 || len(d.Peers) != 2 {
		t.Errorf("%d %+v", status, d)
	}
	var requests uint64
	for _, p := range d.Peers {
		requests += p.Requests
		if !p.Connected || p.State != "active" || p.Weight <= 0 {
			t.Errorf("peer %+v", p)
		}
	}
	if requests != 1 {
		t.Errorf("%d requests counted", requests)
	}
	var plan api.Plan
	if status, _ := r.api(t, "/api/v1/services/echo/plan", &plan); status != 200 || plan.Connections != 2 || plan.RelaysPerWorker["w1"] != 1 {
		t.Errorf("%d %+v", status, plan)
	}
	var members struct{ Members []struct{ ID string } }
	r.api(t, "/api/v1/members", &members)
	var ids []string
	for _, m := range members.Members {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, []string{"r1", "w1", "w2"}) {
		t.Errorf("members %v", ids)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 200, "/api/v1/services": 200, "/api/v1/checksum": 200,
		"/api/v1/services/absent": 404, "/nothing": 404,
	} {
		if status, body := r.api(t, path, nil); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.AdminAddr()+"/api/v1/members", nil)
	if resp, _ := do(t, req); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST to a page that only reads: %d", resp.StatusCode)
	}
}
