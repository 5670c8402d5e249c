package strategy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// measuredOver makes the strategy and has closest and farthest measure.
func measuredOver(t testing.TB, text string, n int) *Strategy {
	t.Helper()
	s := build(t, text, func(c *Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			conn, other := net.Pipe()
			return conn, other.Close()
		}
	})
	update(t, s, endpoints(numbered("worker-", n)...))
	if p, ok := s.picker.(*byDistance); ok {
		for _, e := range p.candidates {
			p.record(probe{address: e.Address, took: time.Duration(len(p.measured)), at: time.Now()})
		}
		p.rank()
	}
	return s
}

var measuredStrategies = []string{
	Stable, StableSHA256, "manual;preferred=worker-3,worker-5", "ordered;preferred=worker-3", Random, Closest, Farthest, Slots, "slots;samples=1",
}

func TestAPickAllocatesNothing(t *testing.T) {
	for _, text := range measuredStrategies {
		if text == Random && raceDetector {
			continue
		}
		for what, r := range map[string]Request{
			"with a key":         {Key: "session-4711"},
			"with a long key":    {Key: strings.Repeat("long", 100)},
			"without a key":      {},
			"excluding one":      {Key: "session-4711", Excluded: [][]string{{"worker-3.1"}, {"worker-1.1"}}},
			"excluding them all": {Excluded: [][]string{{"worker-0.1", "worker-1.1", "worker-2.1", "worker-3.1", "worker-4.1", "worker-5.1", "worker-6.1", "worker-7.1"}}},
		} {
			s := measuredOver(t, text, 8)
			if n := testing.AllocsPerRun(200, func() { _, _ = s.Pick(r) }); n != 0 {
				t.Errorf("%s %s: %v allocations", text, what, n)
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, text := range measuredStrategies {
		name, _, _ := strings.Cut(text, ";preferred")
		for _, n := range []int{8, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := measuredOver(b, text, n)
				keys := numbered("session-", 64)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if _, err := s.Pick(Request{Key: keys[i&63]}); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		}
	}
}

func BenchmarkStableWithUnequalWeights(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, list := build(b, Stable), endpoints(numbered("worker-", n)...)
			for i := range list {
				list[i].Weight = float64(1 + i%10)
			}
			update(b, s, list)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.Pick(Request{Key: "session-4711"})
			}
		})
	}
}

func BenchmarkSlotsUpdate(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, list := build(b, Slots), endpoints(numbered("worker-", n)...)
			b.ReportAllocs()
			for b.Loop() {
				update(b, s, list)
			}
		})
	}
}
