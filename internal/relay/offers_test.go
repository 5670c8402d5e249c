package relay

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
)

// The admin API trusts who connects from its own host, and the ingress would.
func TestNoRecordTurnsTheIngressIntoTheRelaysOtherListeners(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	_, echo := f.echo("honest")
	f.worker("mallory", advertise.Service{Name: "admin", Address: r.AdminAddr()}, advertise.Service{Name: "peer", Address: r.PeerAddr()},
		advertise.Service{Name: "ingress", Address: r.IngressAddr()}, advertise.Service{Name: "fine", Address: echo.Listener.Addr().String()})
	r.settled(t, "echo", 1)
	r.settled(t, "fine", 1)
	for _, name := range []string{"admin", "peer", "ingress"} {
		if resp, body := r.call(t, "GET", "/api/v1/members", nil, "Ringway-Service: "+name); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s answers %s: %s", name, resp.Status, body)
		}
	}
	if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: fine"); resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// Another relay of the host trusts its own host, too, so the offers are refused by all.
func TestAnOfferAtAListenerOfARelayHasNoPlaceInThePlanAndAReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r, other := f.relay(func(*Settings) {}), f.relay(func(*Settings) {})
	for _, one := range []*runningRelay{r, other} { // before that, an offer at a listener of the other is no such offer
		one.await(t, "the other relay", func() bool { s := one.Fleet.Snapshot(); return s != nil && len(s.Members()) == 2 })
	}
	_, echo := f.echo("honest")
	f.worker("mallory", service("echo", echo), advertise.Service{Name: "mixed", Address: r.PeerAddr()}, advertise.Service{Name: "ingress", Address: r.IngressAddr()})
	f.worker("fine", service("mixed", echo))
	for _, one := range []*runningRelay{r, other} {
		one.settled(t, "echo", 2)
		one.await(t, "the plan of mixed", func() bool {
			s, ok := one.Routes.Service("mixed")
			return ok && len(s.Route().Endpoints) == 2 && s.Route().Plan != nil && len(s.Route().Plan.Affine()) == 2
		})
	}
	for _, one := range []*runningRelay{r, other} { // a check asks both
		s, _ := one.Routes.Service("mixed")
		if plan, err := describePlan(s.Route()); err != nil || len(s.Route().Plan.Workers()) != 1 || len(plan.RelaysPerWorker) != 1 || plan.Refused["mallory"] == "" {
			t.Errorf("%v, %+v", err, plan)
		}
		x, err := one.explainWorker(t.Context(), s, "mallory")
		if err != nil || x.Offer != "refused" || x.InRange || !strings.Contains(x.Reason, r.PeerAddr()) {
			t.Errorf("%v, %+v", err, x)
		}
		report, err := one.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		services := map[string]bool{}
		for _, finding := range report.Findings {
			switch {
			case finding.Subject != "mallory":
			case finding.Check != "offers-used":
				t.Errorf("%+v", finding)
			default:
				services[strings.Fields(finding.Text)[3]] = true
			}
		}
		if !services["mixed"] || !services["ingress"] {
			t.Errorf("the check reports %v", services)
		}
	}
	s, _ := r.Routes.Service("ingress") // only r knows its ingress, so the plan has the worker
	if plan, err := describePlan(s.Route()); err != nil || len(s.Route().Plan.Workers()) != 1 || len(plan.RelaysPerWorker) != 0 || plan.Connections != 0 {
		t.Errorf("%v, %+v", err, plan)
	}
}

func TestTheBoundsOfARelayAreThoseOfItsSettings(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	wide := f.relay(func(*Settings) {})
	narrow := f.relay(func(s *Settings) { s.MaxServices = 2 })
	strict := f.relay(func(s *Settings) { s.MaxServicesPerRecord = 2 })
	few := f.relay(func(s *Settings) { s.Plans.MaxRelaysPerService = 3 })
	_, backend := f.echo("w0")
	wide.settled(t, "echo", 1)
	narrow.settled(t, "echo", 1)
	strict.settled(t, "echo", 1)
	few.settled(t, "echo", 1)
	a := service("a", backend)
	a.Relays = 4
	f.worker("w1", a, service("b", backend), service("c", backend))
	for _, c := range []struct {
		r    *runningRelay
		want int // services with echo
	}{{wide, 4}, {narrow, 2}, {strict, 1}, {few, 4}} {
		c.r.await(t, "its services", func() bool {
			// The worker's record is there once it is used or refused.
			v := c.r.Catalogue.View()
			return v.EndpointCount() == c.want && (c.want == 4) == (len(v.Refused()) == 0)
		})
	}
	wide.await(t, "as many relays as were asked for", func() bool {
		s, ok := wide.Routes.Service("a")
		return ok && s.Route().Plan != nil && len(s.Route().Plan.Affine()) == 4
	})
	few.await(t, "as many relays as may be", func() bool {
		s, ok := few.Routes.Service("a")
		return ok && s.Route().Plan != nil && len(s.Route().Plan.Affine()) == 3
	})
	finding := func(r *runningRelay, name string) *api.Finding {
		report, err := r.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(report.Findings, func(f api.Finding) bool { return f.Check == name })
		return &report.Findings[i]
	}
	if got := finding(strict, "offers-used"); got.Status != api.Failed || got.Subject != "w1" {
		t.Errorf("%+v", got)
	}
	if got := finding(wide, "offers-used"); got.Status != api.OK {
		t.Errorf("%+v", got)
	}
}

func TestARelayRaisesTheNumberOfRelaysThatWorkersAskForAndGivesTheReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 4 {
		f.relay(func(*Settings) {})
	}
	_, backend := f.echo("w0")
	few := service("few", backend)
	few.Relays = 1
	f.worker("w1", few)
	r := f.relays[0]
	r.settled(t, "echo", 1)
	r.await(t, "three of four relays", func() bool {
		s, ok := r.Routes.Service("few")
		return ok && s.Route().Plan != nil && len(s.Route().Plan.Affine()) == 3
	})
	const reason = "its workers ask for relays=1, raised to 3 by --min-peers-per-worker"
	var explained api.Explanation
	var described, other api.Service
	for path, answer := range map[string]any{"few/explain": &explained, "few": &described, "echo": &other} {
		if status, text := r.api(t, "/api/v1/services/"+path, answer); status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
	}
	if explained.Plan.RelaysRaised != reason || described.RelaysRaised != reason || other.RelaysRaised != "" {
		t.Errorf("explain %q, service %q, a service that asks for nothing %q", explained.Plan.RelaysRaised, described.RelaysRaised, other.RelaysRaised)
	}
	report, err := r.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Findings, func(f api.Finding) bool {
		return f.Check == "coverage" && f.Subject == "few" && f.Status == api.Warning && strings.Contains(f.Text, "relays=1, which the relays raise to 3")
	}) {
		t.Errorf("the check does not name the advertisement: %+v", report.Findings)
	}
}

func TestACheckNamesTheServiceWhoseWorkersDisagree(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	_, backend := f.echo("w1")
	other := service("echo", backend)
	other.Selection, other.Relays = "stable", 3
	f.worker("w2", other)
	r.settled(t, "echo", 2)
	report, err := r.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, one := range report.Findings {
		if one.Check == "advertised-agree" && one.Subject == "echo" && one.Status == api.Warning {
			found++
		}
	}
	if s, _ := r.Routes.Service("echo"); found != 2 || s.Choice().Spec.Name != "p2c" {
		t.Errorf("%d findings, %s is used; want one for selection and one for relays, and the setting", found, s.Choice().Spec.Name)
	}
}

// What an operator wants to read in the log of a night: who came, what they offered, and
// when that went.
func TestTheLogReportsAtInfoWhichMembersJoinAndWhatIsOffered(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	_, backend := f.echo("w1")
	stop := f.worker("w2", service("echo", backend))
	says := func(parts ...string) {
		t.Helper()
		r.await(t, "a line with "+strings.Join(parts, " "), func() bool {
			for line := range strings.Lines(r.log.String()) {
				if strings.Contains(line, "level=INFO") && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
					return true
				}
			}
			return false
		})
	}
	says(`msg="member joined"`, "member=w1", "role=worker", "addr=")
	says(`msg="offer appeared"`, "service=echo", "worker=w2", "addr="+backend.Listener.Addr().String(), "state=ready")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	says(`msg="offer is draining"`, "service=echo", "worker=w2")
	says(`msg="offer is gone"`, "service=echo", "worker=w2")
	says(`msg="member left"`, "member=w2")
}
