package peering_test

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/internal/peering"
)

// A relay's range of the service "search" moves by one worker. The new connection
// is opened immediately; the old one closes when every relay has had time to open
// theirs.
func Example() {
	table, err := peering.NewTable[string](peering.Config{DrainDelay: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	now := time.Unix(0, 0)
	step := func() {
		actions := table.Step(now)
		for _, worker := range actions.Open {
			table.Opened(worker, now) // a real caller dials, and reports later
		}
		fmt.Printf("at %2ds: open %v, close %v\n", now.Unix(), actions.Open, actions.Close)
	}

	table.Want("search", []string{"w1", "w2", "w3"}, nil, now)
	step()
	now = now.Add(time.Second)
	table.Want("search", []string{"w2", "w3", "w4"}, nil, now)
	step()
	now = now.Add(30 * time.Second)
	step()
	// Output:
	// at  0s: open [w1 w2 w3], close []
	// at  1s: open [w4], close []
	// at 31s: open [], close [w1]
}
