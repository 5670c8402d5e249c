package strategy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

func TestEveryWayAPickEndsIsCounted(t *testing.T) {
	for result, cause := range map[string]func(s *Strategy){
		"picked":       func(s *Strategy) { pick(t, s, atNoon) },
		"all_excluded": func(s *Strategy) { r := without("w"); r.Now = atNoon.Now; wantError(t, s, r, ErrAllExcluded) },
		"no_endpoints": func(s *Strategy) { update(t, s, nil); wantError(t, s, Request{}, ErrNoEndpoints) },
		"all_stale": func(s *Strategy) {
			update(t, s, endpoints("w"))
			wantError(t, s, atNoon, ErrAllStale)
		},
	} {
		w := watch(t)
		s, list := build(t, Slots, w.use), endpoints("w")
		gaugeOf(list[0]).seen = atNoon.Now
		update(t, s, list)
		cause(s)
		s.Explain(Request{})
		if all, this := w.value(t, "ringway_selection_picks_total"), w.value(t, "ringway_selection_picks_total", Slots, result); all != 1 || this != 1 {
			t.Errorf("%s: counted %v, of them %v as such", result, all, this)
		}
	}
	w := watch(t)
	s := build(t, Closest, w.use)
	update(t, s, endpoints("w"))
	wantError(t, s, Request{}, ErrNoMeasurement)
	if got := w.value(t, "ringway_selection_picks_total", Closest, "no_measurement"); got != 1 {
		t.Errorf("no measurement was counted %v times", got)
	}
}

func TestOneSampleLeavesTheMetricsOfComparisonAlone(t *testing.T) {
	for samples, want := range map[string]float64{"1": 0, "2": 50} {
		w := watch(t)
		s := build(t, "slots;samples="+samples, w.use)
		update(t, s, endpoints("a"))
		for range 50 {
			pick(t, s, Request{})
		}
		if e, d := w.value(t, "ringway_selection_samples_effective"), w.value(t, "ringway_selection_sample_dedupes_total"); e != want || d != want {
			t.Errorf("%s samples: %v effective samples observed, %v dedupes", samples, e, d)
		}
		if got := w.value(t, "ringway_selection_ties_total"); got != 0 {
			t.Errorf("%s samples: %v ties with one endpoint", samples, got)
		}
		if got := w.value(t, "ringway_selection_scan_depth"); got != 50 {
			t.Errorf("%s samples: scan depth observed %v times", samples, got)
		}
	}
}

func TestAnExplanationCountsNothing(t *testing.T) {
	w := watch(t)
	before := w.sum(t)
	for _, text := range []string{Stable, StableSHA256, "manual;preferred=a", "ordered;preferred=a", Random, Closest, Slots} {
		s := build(t, text, w.use, func(c *Config) { c.Stale = func(*Endpoint) { t.Error("an explanation handed on a stale endpoint") } })
		update(t, s, endpoints("a", "b"))
		for range 10 {
			s.Explain(atNoon)
		}
	}
	if after := w.sum(t); after != before {
		t.Errorf("the metrics sum up to %v, were %v", after, before)
	}
}

func (w watched) sum(t *testing.T) (sum float64) {
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		sum += w.value(t, f.GetName())
	}
	return sum
}

func TestMetricsAreNamedAndLabelledByTheRules(t *testing.T) {
	w := watch(t)
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "ringway_selection_") {
			t.Errorf("metric %s", f.GetName())
		}
		w.each(t, f.GetName(), func(m *dto.Metric) {
			for _, l := range m.GetLabel() {
				if l.GetName() != "strategy" && l.GetName() != "result" {
					t.Errorf("%s has the label %s", f.GetName(), l.GetName())
				}
			}
		})
	}
	if _, err := NewMetrics(w.registry); err == nil {
		t.Error("registered twice")
	}
	if _, err := NewMetrics(prometheus.NewRegistry()); err != nil {
		t.Error(err)
	}
}
