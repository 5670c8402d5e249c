package routing

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/selection"
)

// chooser is a service whose endpoints advertise what a test sets.
type chooser struct {
	*strategyResolver
	t       *testing.T
	service *Service
	of      strategyState
	log     logtest.Log
}

func newChooser(t *testing.T, cfg StrategiesConfig) *chooser {
	t.Helper()
	c := &chooser{t: t}
	logger := slog.New(slog.NewTextHandler(&c.log, nil))
	var err error
	if c.strategyResolver, err = newStrategyResolver(Config{Strategies: cfg, Plans: DefaultPlanSettings(), Registerer: prometheus.NewRegistry(), Logger: logger}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.lines.Stop)
	if c.service, err = NewService("echo", selection.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	return c
}

// decides is what the service uses when its endpoints advertise these.
func (c *chooser) decides(advertised ...string) string {
	c.t.Helper()
	var endpoints []*advertise.Endpoint
	for _, text := range advertised {
		endpoints = append(endpoints, &advertise.Endpoint{Service: advertise.Service{Name: "echo", Selection: text, State: advertise.Ready}, Worker: &advertise.Worker{}})
	}
	spec, origin := c.decide(c.service, &c.of, endpoints, CountVotes(endpoints, DefaultMaxRelaysPerService))
	return spec.String() + " " + string(origin)
}

func (c *chooser) problemsOf(reason string) int {
	return int(testutil.ToFloat64(c.problems.WithLabelValues(reason)))
}

func TestTheSettingForTheServiceBeatsItsAdvertisementBeatsTheSettingForAll(t *testing.T) {
	random, slots := strategy.Default(strategy.Random), strategy.Default(strategy.Slots)
	all := StrategiesConfig{ByService: map[string]strategy.Spec{"": random}}
	for _, c := range []struct {
		cfg        StrategiesConfig
		advertised []string
		want       string
	}{
		{StrategiesConfig{}, nil, "p2c default"},
		{StrategiesConfig{}, []string{"", ""}, "p2c default"},
		{all, []string{"", ""}, "random setting"},
		{all, []string{"stable", "stable", ""}, "stable advertisement"},
		{StrategiesConfig{ByService: map[string]strategy.Spec{"": random, "billing": slots}}, []string{"stable"}, "stable advertisement"},
		{StrategiesConfig{ByService: map[string]strategy.Spec{"": random, "echo": slots}}, []string{"stable", "stable"}, "slots service_setting"},
		{StrategiesConfig{ByService: map[string]strategy.Spec{"echo": slots}}, nil, "slots service_setting"},
		// Most votes, then the first by text. A worker that sets nothing votes for the
		// setting, or one among many could have all requests.
		{StrategiesConfig{}, []string{"ordered;preferred=mallory", "", "", "", ""}, "p2c default"},
		{all, []string{"stable", ""}, "random setting"},
		{StrategiesConfig{}, []string{"stable", "random", "", "", "", "random"}, "p2c default"},
		{StrategiesConfig{}, []string{"stable", "random", "", "random"}, "random advertisement"},
		{StrategiesConfig{}, []string{"stable", "random"}, "random advertisement"},
		{StrategiesConfig{}, []string{"stable", "slots;vnodes=8", "slots", "slots;vnodes=9", "stable"}, "slots advertisement"},
		{StrategiesConfig{}, []string{"p2c", "p2c", "stable"}, "p2c advertisement"},
		// What makes no sense has no vote.
		{all, []string{"nearest", "nearest"}, "random setting"},
		{all, []string{"nearest", "manual", "stable"}, "stable advertisement"},
	} {
		if got := newChooser(t, c.cfg).decides(c.advertised...); got != c.want {
			t.Errorf("%+v, advertised %q: %s, want %s", c.cfg, c.advertised, got, c.want)
		}
	}
}

func TestProblemsOfAnAdvertisementAreLoggedOnceUntilTheyChange(t *testing.T) {
	c := newChooser(t, StrategiesConfig{})
	said := func(when string, invalid, disagreement int) {
		t.Helper()
		if i, d := c.problemsOf(problemInvalid), c.problemsOf(problemDisagreement); i != invalid || d != disagreement {
			t.Errorf("%s: %d invalid, %d disagreements, want %d, %d", when, i, d, invalid, disagreement)
		}
		if n := strings.Count(c.log.String(), "\n"); n != invalid+disagreement {
			t.Errorf("%s: %d lines:\n%s", when, n, c.log.String())
		}
	}
	c.decides("stable", "stable")
	said("all agree", 0, 0)
	for range 3 {
		c.decides("nearest", "stable")
	}
	said("one is invalid", 1, 0)
	if !strings.Contains(c.log.String(), "nearest") || !strings.Contains(c.log.String(), "must be one of") {
		t.Errorf("%s", c.log.String())
	}
	for range 3 {
		c.decides("nearest", "stable", "random")
	}
	said("two disagree", 1, 1)
	c.decides("stable", "random", "random")
	said("the invalid one is gone", 1, 2)
	c.decides("stable")
	c.decides("slots", "slots;vnodes=8")
	said("different texts, one meaning", 1, 2)
	c.decides("nearest")
	said("it is back", 2, 2)
}

// A service whose last worker restarts does not change its strategy for that.
func TestAStrategyOutlivesTheEndpointsThatAdvertisedIt(t *testing.T) {
	c := newChooser(t, StrategiesConfig{})
	choice, err := NewChoice(ChoiceConfig{Spec: strategy.Default(strategy.Stable), Origin: FromAdvertisement})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.service.SetChoice(choice); err != nil {
		t.Fatal(err)
	}
	if got := c.decides(); got != "stable advertisement" {
		t.Errorf("none is left: %s", got)
	}
	if got := c.decides(""); got != "p2c default" {
		t.Errorf("one advertises none: %s", got)
	}
}

func TestOnlyWhatMustReachEveryWorkerIsConnectedToAll(t *testing.T) {
	want := map[string]bool{
		strategy.P2C: false, strategy.Random: false, strategy.Slots: false,
		strategy.Stable: true, strategy.StableSHA256: true, strategy.Manual: true, strategy.Ordered: true, strategy.Closest: true, strategy.Farthest: true,
	}
	for _, name := range strategy.Names() {
		if all, known := want[name]; !known || strategy.Default(name).NeedsWholeRange() != all {
			t.Errorf("%s: %v", name, strategy.Default(name).NeedsWholeRange())
		}
	}
}

func TestWhatNamesWorkersReachesAllOfThemFromEveryRelayInAnyDatacenter(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "echo", RelaysPerService: 9}
	for i := range 12 {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("r", i), Place: affinity.Place{Datacenter: fmt.Sprint("dc", i%3), Region: fmt.Sprint("region", i%2)}})
	}
	for i := range 20 {
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("w", i), Weight: 10, Place: affinity.Place{Datacenter: fmt.Sprint("dc", i%4), Region: fmt.Sprint("region", i%2)}})
	}
	for _, s := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg.Strategy = s
		for _, all := range []bool{true, false} {
			cfg.WholeRange = all
			plan, err := affinity.NewPlan(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i := range plan.Affine() {
				if assignments, err := plan.Assignments(i); err != nil || (len(assignments) == 20) != all {
					t.Errorf("%s, whole range %v: relay %d has %d of 20 workers, %v", s, all, i, len(assignments), err)
				}
			}
		}
	}
}

func TestTheSettingDecidesOnTheSessionCookieOfItsService(t *testing.T) {
	cfg := StrategiesConfig{SessionCookies: map[string]string{"shop": "cart", "off": ""}}
	advertised := advertise.Policy{SessionCookie: "sid"}
	for service, want := range map[string]string{"shop": "cart service_setting", "off": " service_setting", "echo": "sid advertisement"} {
		if name, origin := cfg.SessionCookie(service, advertised); name+" "+string(origin) != want {
			t.Errorf("%s: %q %s, want %q", service, name, origin, want)
		}
	}
	if name, origin := cfg.SessionCookie("echo", advertise.Policy{}); name != "" || origin != FromDefault {
		t.Errorf("%q, %s", name, origin)
	}
}

func TestMostWorkersDecideOnEachFieldOfThePolicy(t *testing.T) {
	c := newChooser(t, StrategiesConfig{SessionCookies: map[string]string{"shop": "cart", "off": ""}})
	decides := func(advertised ...string) string {
		var endpoints []*advertise.Endpoint
		for _, text := range advertised {
			endpoints = append(endpoints, &advertise.Endpoint{Service: advertise.Service{Name: "echo", Policy: text, State: advertise.Ready}, Worker: &advertise.Worker{}})
		}
		return c.policy("echo", &c.of, CountVotes(endpoints, DefaultMaxRelaysPerService)).String()
	}
	for _, step := range []struct {
		advertised            []string
		want                  string
		invalid, disagreement int // problems so far
	}{
		{[]string{"retry=never", "retry=never"}, "retry=never", 0, 0},
		{[]string{"retry=never", "retry=never", ""}, "retry=never", 0, 1},
		{[]string{"retry=never", "retry=never", ""}, "retry=never", 0, 1}, // nothing new
		{[]string{"retry=never", "", ""}, "", 0, 2},                       // one worker does not decide for all
		{[]string{"request-timeout=10s", "request-timeout=9s"}, "request-timeout=9s", 0, 3},
		{[]string{"request-timeout=10s;retry=never", "request-timeout=10s;retry=connect", "retry=connect"}, "request-timeout=10s;retry=connect", 0, 4},
		// A worker of a later release advertises a field that this one does not know.
		{[]string{"retry=never;colour=blue", "retry=never;colour=blue"}, "retry=never", 1, 4},
		{[]string{"retry=sometimes", "retry=sometimes", "retry=never"}, "", 2, 5},
		{nil, "", 2, 5},
		{[]string{"session-cookie=sid", "session-cookie=sid", "session-cookie=other"}, "session-cookie=sid", 2, 6},
		{[]string{"session-cookie=sid", ""}, "", 2, 7},
		{[]string{"session-cookie=cart", "session-cookie=cart"}, "", 3, 7}, // the settings give it to another service
	} {
		if got := decides(step.advertised...); got != step.want {
			t.Errorf("%q: %q, want %q", step.advertised, got, step.want)
		}
		invalid, disagreement := testutil.ToFloat64(c.policies.WithLabelValues(problemInvalid)), testutil.ToFloat64(c.policies.WithLabelValues(problemDisagreement))
		if int(invalid) != step.invalid || int(disagreement) != step.disagreement || strings.Count(c.log.String(), "\n") != step.invalid+step.disagreement {
			t.Errorf("%q: %v invalid, %v disagreements, want %d, %d; the log:\n%s", step.advertised, invalid, disagreement, step.invalid, step.disagreement, c.log.String())
		}
	}
}

// A worker may publish two records a second, each with other texts for each of its services.
func TestWhatAWorkerAdvertisesFillsNoLog(t *testing.T) {
	c := newChooser(t, StrategiesConfig{})
	const texts = 500
	begun := time.Now()
	for i := range texts {
		c.decides(fmt.Sprint("bogus", i))
	}
	seconds := 1 + int(time.Since(begun).Seconds())
	if n := strings.Count(c.log.String(), "\n"); n > seconds*(loglimit.Lines+1) {
		t.Errorf("%d lines within %d s, want at most %d in each, and their number", n, seconds, loglimit.Lines)
	}
	if n := c.problemsOf(problemInvalid); n != texts {
		t.Errorf("%d problems are counted, want %d", n, texts)
	}
}
