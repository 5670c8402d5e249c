package expiry_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/ringway/ringway/internal/expiry"
)

// A reader finds worker-7, silent for too long, twice. It is checked once; the
// second check, later, finds that it is gone.
func Example() {
	silent := map[string]bool{"worker-7": true} // the owner of the entries
	done := make(chan expiry.Outcome)
	scheduler, err := expiry.New(expiry.Config[string]{
		MaxConcurrent: 1, MaxPending: expiry.DefaultMaxPending,
		Expire: func(_ context.Context, worker string) (expiry.Outcome, error) {
			outcome := expiry.Already
			if silent[worker] {
				delete(silent, worker)
				outcome = expiry.Expired
			}
			done <- outcome
			return outcome, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(scheduler.Observe("worker-7"), scheduler.Observe("worker-7"))

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = scheduler.Run(ctx) })
	fmt.Println(<-done)
	for scheduler.Observe("worker-7") != expiry.Queued { // until the first look has ended
	}
	fmt.Println(<-done)
	cancel()
	running.Wait()
	// Output:
	// queued deduped
	// expired
	// already
}
