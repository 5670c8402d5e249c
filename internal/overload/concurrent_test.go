package overload

import (
	"sync"
	"testing"
	"time"
)

func TestRequestsMayComeFromManyGoroutinesWhileTheLimitIsJudged(t *testing.T) {
	var l Limiter
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				if l.Enter() {
					[]func(){func() { l.Answered(time.Duration(i)*time.Millisecond, 0) }, func() { l.GaveUp(time.Second) }, l.Left}[i%3]()
				}
			}
		})
	}
	all.Go(func() {
		for i := range 200 {
			l.Tick(time.Duration(i)*Every, 3)
		}
	})
	all.Wait()
	if l.Waiting() != 0 {
		t.Errorf("%d requests wait after all have ended", l.Waiting())
	}
}
