package ring_test

import (
	"fmt"
	"testing"

	"github.com/ringway/ringway/ring"
)

func manyIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("worker-%05d.eu-west", i)
	}
	return ids
}

func BenchmarkTop8Of300(b *testing.B) {
	for _, weights := range []string{"equal", "unequal"} {
		b.Run(weights, func(b *testing.B) {
			var nodes []ring.Node
			for i, id := range manyIDs(300) {
				weight := 1.0
				if weights == "unequal" {
					weight += float64(i % 3)
				}
				nodes = append(nodes, ring.Node{ID: id, Weight: weight})
			}
			r := mustRendezvous(b, nodes...)
			b.ReportAllocs()
			for b.Loop() {
				r.Top("session-4711", 8)
			}
		})
	}
}

func BenchmarkOrder10000(b *testing.B) {
	ids := manyIDs(10_000)
	b.ReportAllocs()
	for b.Loop() {
		ring.Order("billing", ids)
	}
}

func BenchmarkIsOrdered10000(b *testing.B) {
	ids := ring.Order("billing", manyIDs(10_000))
	b.ReportAllocs()
	for b.Loop() {
		if !ring.IsOrdered("billing", ids) {
			b.Fatal("not ordered")
		}
	}
}
