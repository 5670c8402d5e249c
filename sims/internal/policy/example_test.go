package policy_test

import (
	"fmt"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

func Example() {
	p99 := func(p queueing.Policy) int64 {
		r, err := queueing.Run(queueing.Config{
			Topology: queueing.Topology{Clients: 5, Workers: 20, Range: 20},
			Scenario: queueing.Hetero,
			Policy:   p,
			Load:     0.7,
			Seed:     1,
		})
		if err != nil {
			panic(err)
		}
		return r.Percentile(99).Milliseconds()
	}
	ours := p99(policy.Ringway("ringway", selection.DefaultConfig()))
	fmt.Println("faster than least-request:", ours < p99(policy.LeastRequest))
	fmt.Println("faster than Peak EWMA:", ours < p99(policy.PeakEWMA))
	// Output:
	// faster than least-request: true
	// faster than Peak EWMA: true
}
