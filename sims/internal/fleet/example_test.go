package fleet_test

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/fleet"
)

// A fleet, connected by one of our strategies.
func Example() {
	s, err := fleet.ParseSize("50x1009x3")
	if err != nil {
		fmt.Println(err)
		return
	}
	f := fleet.New(s.Relays, s.Workers)
	g := fleet.NewGraph(f)
	if err := fleet.Strategies()[0].Connect(g, s, f); err != nil {
		fmt.Println(err)
		return
	}
	got := fleet.Measure(g, f)
	fmt.Println(got.Connections, s.Minimum(), got.PerWorker, got.PerRelay)
	// Output: 3027 3027 {3 3} {60 61}
}
