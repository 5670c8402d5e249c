package routing

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// planners returns a relay with a version of the settings of the plan, a gate and another relay that
// have neither that version nor the relay's strategies and cookies, in a fleet of 40 relays and 400
// workers.
func planners(t *testing.T, strategies StrategiesConfig, offers func(worker int) advertise.Service) (author *Router, others []*Router) {
	t.Helper()
	var members []membership.Member
	for i := range 40 {
		members = append(members, membership.Member{ID: fmt.Sprintf("r%02d", i), Epoch: 1, Role: identity.RoleRelay,
			GossipAddr: fmt.Sprintf("10.1.0.%d:7400", i), ForwardAddr: fmt.Sprintf("10.1.0.%d:7402", i)})
	}
	const workers = 400
	for i := range workers {
		members = append(members, membership.Member{ID: fmt.Sprintf("w%03d", i), Epoch: 1, Role: identity.RoleWorker, GossipAddr: fmt.Sprintf("10.2.%d.%d:7400", i/250, i%250)})
	}
	members = append(members, membership.Member{ID: "g1", Epoch: 1, Role: identity.RoleGate, GossipAddr: "10.3.0.1:7400"})
	slices.SortFunc(members, func(a, b membership.Member) int { return cmp.Compare(a.ID, b.ID) })
	f := newQuietFleet(t, "r00", members)
	for i := range workers {
		s := offers(i)
		s.Name, s.Address = "echo", fmt.Sprintf("10.2.%d.%d:8080", i/250, i%250)
		f.state(fmt.Sprintf("w%03d", i), 1, s)
	}
	planner := func(self string, role identity.Role, plans PlanSettings, strategies StrategiesConfig) *Router {
		r, err := New(Config{Self: self, Role: role, Catalogue: f, Selection: selection.DefaultConfig(), Epoch: time.Now(), Plans: plans, PlansFromFleet: true, PickOnly: true, Strategies: strategies,
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	author = planner("r00", identity.RoleRelay, PlanSettings{Version: 8}, strategies)
	if err := f.State(advertise.RelayStatement{Plan: author.agreement.inUse.stated()}); err != nil {
		t.Fatal(err)
	}
	all := having(workers, "echo", func(*advertise.Endpoint) bool { return true })
	v := f.view(func(v *advertise.View) bool {
		return all(v) && len(maps.Collect(v.Relays().All())) == 1
	})
	others = []*Router{planner("g1", identity.RoleGate, PlanSettings{}, StrategiesConfig{}), planner("r01", identity.RoleRelay, PlanSettings{}, StrategiesConfig{})}
	for _, r := range append(others, author) {
		r.view, r.snapshot = v, v.Members()
		r.update()
	}
	return author, others
}

func TestRelaysAndGatesPlanAlikeWhateverTheirOwnStrategiesAndCookies(t *testing.T) {
	t.Parallel()
	offering := func(s advertise.Service) func(int) advertise.Service {
		return func(int) advertise.Service { return s }
	}
	plain := offering(advertise.Service{})
	spec := func(service, name string) StrategiesConfig {
		return StrategiesConfig{ByService: map[string]strategy.Spec{service: strategy.Default(name)}}
	}
	cookie := func(name string) StrategiesConfig {
		return StrategiesConfig{SessionCookies: map[string]string{"echo": name}}
	}
	const one, many, all, newest = 10, 36, 400, 300
	for name, c := range map[string]struct {
		strategies      StrategiesConfig
		offers          func(int) advertise.Service
		relays, workers int
	}{
		"nothing is set":                   {StrategiesConfig{}, plain, many, all},
		"a cookie":                         {cookie("sid"), plain, one, all},
		"a strategy of the service":        {spec("echo", strategy.Stable), plain, one, all},
		"a strategy of all services":       {spec("", strategy.StableSHA256), plain, one, all},
		"an advertised strategy":           {StrategiesConfig{}, offering(advertise.Service{Selection: "stable"}), one, all},
		"an advertised one has precedence": {spec("", strategy.Stable), offering(advertise.Service{Selection: "random"}), many, all},
		"an advertised one is overridden":  {spec("echo", strategy.P2C), offering(advertise.Service{Selection: "stable"}), many, all},
		"an advertised cookie":             {StrategiesConfig{}, offering(advertise.Service{Policy: "session-cookie=sid"}), one, all},
		"an advertised cookie is disabled": {cookie(""), offering(advertise.Service{Policy: "session-cookie=sid"}), many, all},
		"a cookie and a strategy without":  {StrategiesConfig{ByService: spec("echo", strategy.P2C).ByService, SessionCookies: cookie("sid").SessionCookies}, plain, one, all},
		"slots use one version": {spec("echo", strategy.Slots), func(worker int) advertise.Service {
			return advertise.Service{Version: map[bool]string{true: "v1", false: "v2"}[worker < all-newest]}
		}, many, newest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			author, others := planners(t, c.strategies, c.offers)
			want := (*author.services.Load())["echo"].Route()
			if want.Plan == nil || len(want.Plan.Affine()) != c.relays || len(want.Plan.Workers()) != c.workers {
				t.Fatalf("the plan is %+v: want %d relays and %d workers", want.Plan, c.relays, c.workers)
			}
			for _, r := range others {
				if got := (*r.services.Load())["echo"].Route(); got.Plan == nil || !slices.Equal(got.Plan.Affine(), want.Plan.Affine()) || got.PlanVersion() != want.PlanVersion() {
					t.Errorf("%s has another plan: %d relays, %d workers", r.cfg.Self, len(got.Plan.Affine()), len(got.Plan.Workers()))
				}
			}
		})
	}
}

func TestANewVersionKeepsWhatStrategiesAndCookiesNeed(t *testing.T) {
	t.Parallel()
	r, err := New(Config{Self: "r1", Role: identity.RoleRelay, Selection: selection.DefaultConfig(), Epoch: time.Now(), PlansFromFleet: true,
		Strategies: StrategiesConfig{SessionCookies: map[string]string{"echo": "sid"}}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if agreed, err := r.SetPlans(PlanSettings{Version: 9}, true); err != nil || agreed.Version != 9 || agreed.Cookies["echo"] != NeedAll {
		t.Errorf("%+v, %v", agreed, err)
	}
}

// Otherwise relays of both releases would have other values with one version.
func TestSettingsOfFleetsThatNeedNothingHaveTheTextOfEarlierReleases(t *testing.T) {
	t.Parallel()
	const before = "index-source=slot&max-relays-per-service=64&min-peers-per-relay=3&min-peers-per-tier=3&min-peers-per-worker=3&relays-per-service=auto&strategy=projection&zone-slack=1.1"
	for _, strategies := range []StrategiesConfig{{}, {ByService: map[string]strategy.Spec{"": strategy.Default(strategy.Random)}, SessionCookies: map[string]string{}}} {
		if text := DefaultPlanSettings().WithNeeds(strategies).Text(); text != before {
			t.Errorf("%+v: %s", strategies, text)
		}
	}
}
