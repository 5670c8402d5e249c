package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

func plannedService(t *testing.T, name string, relays, workers int) *routing.Service {
	t.Helper()
	s, err := routing.NewService(name, selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	setPlan(t, s, relays, workers)
	return s
}

func setPlan(t *testing.T, s *routing.Service, relays, workers int) {
	t.Helper()
	cfg := affinity.PlanConfig{Service: s.Name, Minimums: affinity.DefaultMinimums}
	for i := range relays {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("r", i)})
	}
	for i := range workers {
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("w", i)})
	}
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRoute(&routing.Route{Index: -1, Plan: plan}, 0); err != nil {
		t.Fatal(err)
	}
}

func TestCoverageIsThatOfTheWorkerWithTheFewestRelays(t *testing.T) {
	reg := prometheus.NewRegistry()
	var services []*routing.Service
	newCoverage(reg, func() []*routing.Service { return services })
	unplanned, err := routing.NewService("unplanned", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	wide, narrow := plannedService(t, "wide", 10, 4), plannedService(t, "narrow", 2, 6)
	for _, c := range []struct {
		name     string
		services []*routing.Service
		want     int // 0 is none
	}{
		{"nothing is known", nil, 0},
		{"nothing is planned", []*routing.Service{unplanned}, 0},
		{"one service, where p·R asks for more than m·W", []*routing.Service{unplanned, wide}, 7},
		{"two services", []*routing.Service{wide, narrow, unplanned}, 2},
		{"the worse is gone", []*routing.Service{wide}, 7},
	} {
		services = c.services
		expectCoverage(t, reg, c.name, c.want)
	}
	services = []*routing.Service{wide, narrow}
	setPlan(t, narrow, 4, 8)
	expectCoverage(t, reg, "a new plan", 3)
}

func expectCoverage(t *testing.T, reg *prometheus.Registry, name string, want int) {
	t.Helper()
	text := ""
	if want > 0 {
		text = fmt.Sprintf("# HELP ringway_relay_coverage_min_relays Relays that connect to the worker with the fewest, over all services, by the newest plans and without what has vanished; absent while there is nothing to plan.\n# TYPE ringway_relay_coverage_min_relays gauge\nringway_relay_coverage_min_relays %d\n", want)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(text)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
