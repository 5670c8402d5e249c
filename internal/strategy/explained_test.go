package strategy

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAnExplainedPickIsAPickAndCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Spec: Default(Stable), Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	if d := s.PickExplained(Request{Key: "a"}); !errors.Is(d.Err, ErrNoEndpoints) || d.Winner != nil {
		t.Errorf("no endpoint: %+v", d)
	}
	if err := s.Update([]Endpoint{{ID: "1", Node: "w1", Weight: 1}, {ID: "2", Node: "w2", Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		e, err := s.Pick(Request{Key: key})
		d := s.PickExplained(Request{Key: key})
		if err != nil || d.Err != nil || d.Winner != e || len(d.Candidates) != 2 {
			t.Errorf("%s: %v, %v, explained %+v", key, e, err, d)
		}
	}
	got, none := testutil.ToFloat64(m.picks[Stable][picked]), testutil.ToFloat64(m.picks[Stable][noEndpoints])
	if got != 8 || none != 1 {
		t.Errorf("%v picked, %v without, want 8 and 1", got, none)
	}
	s.Explain(Request{})
	if testutil.ToFloat64(m.picks[Stable][picked]) != 8 {
		t.Error("an explanation counted")
	}
}
