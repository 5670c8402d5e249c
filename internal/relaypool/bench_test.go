package relaypool

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

// One request: a place, its report and its release.
func BenchmarkRequest(b *testing.B) {
	for _, key := range []string{"", "session-7"} {
		b.Run(fmt.Sprintf("key=%q", key), func(b *testing.B) {
			r := newRig(b, config()).update(relays(8))
			now := r.now
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				tk, err := r.Acquire(Request{Key: key}, now)
				if err != nil {
					b.Fatal(err)
				}
				r.Report(tk, selection.Success, time.Millisecond, now)
				r.Release(tk, now)
			}
		})
	}
}

// A ranking, which happens once a minute and with every change.
func BenchmarkUpdate300(b *testing.B) {
	r := newRig(b, config()).update(relays(300))
	all := relays(300)
	b.ReportAllocs()
	for b.Loop() {
		r.update(all)
	}
}
