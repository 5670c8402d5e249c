package docgen

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

func TestWhatAProcessRegistersFollowsTheRulesOfPrometheus(t *testing.T) {
	for process, metrics := range map[string]func(func(*prometheus.Registry) error) error{"relay": relayMetrics, "worker": workerMetrics()} {
		if err := metrics(func(reg *prometheus.Registry) error {
			gathered, err := reg.Gather()
			if len(gathered) < 30 {
				t.Errorf("a %s has only %d metrics", process, len(gathered))
			}
			return errors.Join(err, lint(t, gathered), lint(t, withoutSeries(t, reg, gathered)))
		}); err != nil {
			t.Error(err)
		}
	}
}

func lint(t *testing.T, families []*dto.MetricFamily) error {
	t.Helper()
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	return err
}

// withoutSeries are the metrics that were registered and have no series yet, such as
// those of a service. Their kind is not known, so a name specifies the kind that it must be.
func withoutSeries(t *testing.T, reg *prometheus.Registry, gathered []*dto.MetricFamily) (families []*dto.MetricFamily) {
	t.Helper()
	there := map[string]bool{}
	for _, f := range gathered {
		there[f.GetName()] = true
	}
	described, err := describe(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range described {
		if there[m.name] {
			continue
		}
		kind, one := dto.MetricType_GAUGE, &dto.Metric{Gauge: &dto.Gauge{}}
		switch {
		case strings.HasSuffix(m.name, "_total"):
			kind, one = dto.MetricType_COUNTER, &dto.Metric{Counter: &dto.Counter{}}
		case strings.HasSuffix(m.name, "_duration_seconds"):
			kind, one = dto.MetricType_HISTOGRAM, &dto.Metric{Histogram: &dto.Histogram{}}
		}
		for _, label := range labelNames.FindAllString(m.labels, -1) {
			one.Label = append(one.Label, &dto.LabelPair{Name: &label})
		}
		families = append(families, &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &kind, Metric: []*dto.Metric{one}})
	}
	return families
}

func TestThatARuleIsBrokenIsSeen(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "ringway_things", Help: "A counter without its suffix."}))
	gathered, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(gathered).Lint(); err != nil || len(problems) == 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

var ourName = regexp.MustCompile(`ringway_[a-z0-9_]+\{([a-z_]+)=`)

func TestEveryNameOfOthersLeadsToAMetricThatExistsOrToAReason(t *testing.T) {
	var page bytes.Buffer
	if err := Metrics(&page); err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(page.String(), "## Other names")
	seen := map[string]bool{}
	for _, s := range sources {
		if seen[s.Theirs] || s.Row == "" {
			t.Errorf("%s is there twice, or in no row", s.Theirs)
		}
		seen[s.Theirs] = true
		if len(s.Ours) == 0 && s.Note == "" {
			t.Errorf("%s has become nothing, without a reason", s.Theirs)
		}
		for _, ours := range s.Ours {
			name, _, _ := strings.Cut(ours, "{")
			_, row, found := strings.Cut(table, "| `"+name+"` | ")
			if !found {
				t.Errorf("%s: there is no %s", s.Theirs, name)
			}
			row, _, _ = strings.Cut(row, "\n")
			if label := ourName.FindStringSubmatch(ours); label != nil && !strings.Contains(row, "`"+label[1]+"`") {
				t.Errorf("%s: %s has no label %s", s.Theirs, name, label[1])
			}
		}
		for _, name := range regexp.MustCompile("`(ringway_[a-z0-9_]+)").FindAllStringSubmatch(s.Note, -1) {
			if !strings.Contains(table, "| `"+name[1]+"` |") {
				t.Errorf("%s: the note names %s, which there is not", s.Theirs, name[1])
			}
		}
	}
}
