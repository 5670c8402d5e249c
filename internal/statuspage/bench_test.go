package statuspage

import (
	"fmt"
	"testing"
)

// What one event costs: a view of a service of n workers, at the most.
func BenchmarkSections(b *testing.B) {
	for _, n := range []int{24, 1000, 10_000} {
		d := relayDocument(n)
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			size := 0
			for b.Loop() {
				v := newView(&d, query{}, defaultRows)
				sections, err := v.drawSections()
				if err != nil {
					b.Fatal(err)
				}
				size = 0
				for _, s := range sections {
					size += len(s)
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
