package selection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

// benchRange returns a warm balancer over n endpoints and a time after its
// slow start.
func benchRange(b *testing.B, n int) (*selection.Balancer[any], selection.Instant) {
	b.Helper()
	bal, err := selection.NewBalancer[any](selection.DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	endpoints := make([]selection.Endpoint[any], n)
	for i := range endpoints {
		endpoints[i] = selection.Endpoint[any]{ID: fmt.Sprintf("w%04d", i), Weight: 1}
	}
	if err := bal.Update(endpoints, 0); err != nil {
		b.Fatal(err)
	}
	now := selection.Instant(4 * time.Second)
	for i := range 20 * n {
		p, err := bal.Pick(now, nil)
		if err != nil {
			b.Fatal(err)
		}
		now += selection.Instant(time.Duration(1+i%20) * time.Millisecond)
		bal.Done(p, now, selection.Result{Outcome: selection.Success, Load: i % 4, HasLoad: true})
	}
	bal.Refresh(now)
	return bal, now
}

// BenchmarkPickDone is one request's share of selection, with both clock reads.
func BenchmarkPickDone(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bal, start := benchRange(b, n)
			epoch := time.Now().Add(-time.Duration(start))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p, err := bal.Pick(selection.Instant(time.Since(epoch)), nil)
				if err != nil {
					b.Fatal(err)
				}
				i++
				bal.Done(p, selection.Instant(time.Since(epoch)), selection.Result{Outcome: selection.Success, Load: i & 3, HasLoad: true})
			}
		})
	}
}

// BenchmarkPickDoneTimeGiven leaves the clock reads out. Time passes as in a
// relay: 100 µs between requests, 1 to 16 ms per request.
func BenchmarkPickDoneTimeGiven(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bal, now := benchRange(b, n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				now += selection.Instant(100 * time.Microsecond)
				i++
				p, err := bal.Pick(now, nil)
				if err != nil {
					b.Fatal(err)
				}
				bal.Done(p, now+selection.Instant(1+i&15)*selection.Instant(time.Millisecond), selection.Result{Outcome: selection.Success, Load: i & 3, HasLoad: true})
			}
		})
	}
}
