package strategy

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ringway/ringway/selection"
)

// build makes a strategy from the form that Parse reads.
func build(t testing.TB, text string, change ...func(*Config)) *Strategy {
	t.Helper()
	spec, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Spec: spec}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// over makes a strategy over endpoints of these nodes.
func over(t testing.TB, text string, nodes ...string) *Strategy {
	t.Helper()
	s := build(t, text)
	update(t, s, endpoints(nodes...))
	return s
}

func update(t testing.TB, s *Strategy, endpoints []Endpoint) {
	t.Helper()
	if err := s.Update(endpoints); err != nil {
		t.Fatal(err)
	}
}

// endpoints returns one of weight 1 for each node, always fresh, without load.
// The instance of node x is x.1.
func endpoints(nodes ...string) []Endpoint {
	list := make([]Endpoint, len(nodes))
	for i, node := range nodes {
		list[i] = Endpoint{ID: node + ".1", Node: node, Address: node + ":80", Weight: 1, Signals: new(gauge)}
	}
	return list
}

// gauge is an endpoint's signals. It counts how often it is read.
type gauge struct {
	load         atomic.Int64
	seen         selection.Instant // fresh while Request.Now is at most 10 s later
	neverSeen    bool
	loads, seens atomic.Int64
}

func (g *gauge) Load() (int, bool) {
	g.loads.Add(1)
	return int(g.load.Load()), true
}

func (g *gauge) Seen() (selection.Instant, bool) {
	g.seens.Add(1)
	return g.seen, !g.neverSeen
}

// pick returns the node picked.
func pick(t testing.TB, s *Strategy, r Request) string {
	t.Helper()
	e, err := s.Pick(r)
	if err != nil {
		t.Fatal(err)
	}
	return e.Node
}

// without is a request that excludes the instances of the nodes.
func without(nodes ...string) Request {
	ids := make([]string, len(nodes))
	for i, node := range nodes {
		ids[i] = node + ".1"
	}
	return Request{Key: "test", Excluded: [][]string{ids}}
}

func wantError(t testing.TB, s *Strategy, r Request, want error) {
	t.Helper()
	if e, err := s.Pick(r); e != nil || !errors.Is(err, want) {
		t.Errorf("picked %v, error %v; want the error %q", e, err, want)
	}
}

func seeded(seed uint64) func(*Config) {
	return func(c *Config) { c.Rand = rand.NewPCG(seed, 1) }
}

// watched is metrics with a way to read them.
type watched struct {
	*Metrics
	registry *prometheus.Registry
}

func watch(t testing.TB) watched {
	t.Helper()
	w := watched{registry: prometheus.NewRegistry()}
	m, err := NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	w.Metrics = m
	return w
}

func (w watched) use(c *Config) { c.Metrics = w.Metrics }

// value returns the sum over a metric's series whose labels have all the given
// values; of a histogram the number of observations.
func (w watched) value(t testing.TB, name string, labels ...string) (sum float64) {
	t.Helper()
	w.each(t, name, func(m *dto.Metric) {
		have := map[string]bool{}
		for _, l := range m.GetLabel() {
			have[l.GetValue()] = true
		}
		for _, l := range labels {
			if !have[l] {
				return
			}
		}
		sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	})
	return sum
}

// total returns the sum of what a histogram observed.
func (w watched) total(t testing.TB, name string) (sum float64) {
	t.Helper()
	w.each(t, name, func(m *dto.Metric) { sum += m.GetHistogram().GetSampleSum() })
	return sum
}

func (w watched) each(t testing.TB, name string, visit func(*dto.Metric)) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				visit(m)
			}
			return
		}
	}
	t.Fatalf("no metric %s", name)
}
