package advertise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Two members that hold each place for as long as an exchange may take leave the places to others for
// most of the time, however they take turns.
func TestTwoMembersDoNotHoldBothPlacesForExchanges(t *testing.T) {
	for _, held := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			in := new(inbound)
			in.run(context.Background())
			const lasts = 20 * time.Minute
			begun := time.Now()
			for _, thief := range []string{"thief-1", "thief-2"} {
				go func() {
					for time.Since(begun) < lasts {
						if in.start(thief) {
							time.Sleep(held)
							in.finish(thief)
							continue
						}
						time.Sleep(10 * time.Millisecond)
					}
				}()
			}
			var asked, refused int
			var longest time.Duration
			since := time.Now()
			for time.Since(begun) < lasts {
				time.Sleep(100 * time.Millisecond)
				asked++
				if !in.start("honest") {
					refused++
					longest = max(longest, time.Since(since))
					continue
				}
				time.Sleep(10 * time.Millisecond)
				in.finish("honest")
				since = time.Now()
			}
			t.Logf("held for %v: an honest member is refused %d of %d times, for %v at most", held, refused, asked, longest)
			if refused > asked*3/10 || longest > held+time.Second {
				t.Errorf("held for %v: an honest member is refused %d of %d times, for %v at most", held, refused, asked, longest)
			}
		})
	}
}
