package queueing_test

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

func Example() {
	for _, p := range []queueing.Policy{policy.Random, policy.Omniscient} {
		r, err := queueing.Run(queueing.Config{
			Topology: queueing.Topology{Clients: 5, Workers: 20, Range: 20},
			Scenario: queueing.Equal,
			Policy:   p,
			Load:     0.1,
			Seed:     1,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %d requests, %d shed\n", p.Name, r.Requests, r.Shed)
	}
	// Output:
	// random: 4499 requests, 0 shed
	// omniscient: 4499 requests, 0 shed
}
