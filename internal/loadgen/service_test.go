package loadgen

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheSameSeedDrawsTheSameServiceTimes(t *testing.T) {
	draw := func(seed uint64) (out []time.Duration) {
		s := NewStub(StubConfig{Name: "worker-01", Median: time.Millisecond, Seed: seed, Stream: 1})
		for range 20 {
			out = append(out, s.serviceTime())
		}
		return out
	}
	if !slices.Equal(draw(1), draw(1)) {
		t.Error("one seed, two sequences")
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("two seeds, one sequence")
	}
}
