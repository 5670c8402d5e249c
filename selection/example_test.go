package selection_test

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/selection"
)

// One request with a retry: the endpoint that failed is excluded for this
// request only.
func Example() {
	balancer, err := selection.NewBalancer[string](selection.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	epoch := time.Now()
	now := func() selection.Instant { return selection.Instant(time.Since(epoch)) }

	err = balancer.Update([]selection.Endpoint[string]{
		{ID: "worker-1", Weight: 1, Value: "10.0.0.1:8080"},
		{ID: "worker-2", Weight: 1, Value: "10.0.0.2:8080"},
	}, now())
	if err != nil {
		fmt.Println(err)
		return
	}

	send := func(address string) (inFlight int, ok bool) { return 3, address == "10.0.0.2:8080" }

	var tried selection.Exclusion
	for range 2 {
		pick, err := balancer.Pick(now(), &tried)
		if err != nil {
			fmt.Println(err)
			return
		}
		inFlight, ok := send(pick.Value())
		if ok {
			balancer.Done(pick, now(), selection.Result{Outcome: selection.Success, Load: inFlight, HasLoad: true})
			fmt.Println("answered by", pick.ID())
			break
		}
		balancer.Done(pick, now(), selection.Result{Outcome: selection.Failure})
		pick.AddTo(&tried)
	}
	// Output: answered by worker-2
}
