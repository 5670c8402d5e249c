package latency_test

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/latency"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

func Example() {
	grid := latency.Grid{
		Cells:    []latency.Cell{{Topology: latency.Small, Scenario: queueing.FailFast, Load: 0.5, Seeds: 1}},
		Policies: []queueing.Policy{policy.Omniscient, policy.LeastRequest},
	}
	rows, err := grid.Run(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range latency.Judge(rows, "least-request") {
		fmt.Println(p.Name, "holds:", p.Holds())
	}
	// Output:
	// share to a worker that fails fast, over fair holds: false
}
