package gossip_test

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/scenarios/gossip"
)

// Twelve members, six minutes: what an idle member sends, and whether a crash is noticed.
func ExampleMeasure() {
	fleet, err := gossip.Measure(gossip.Config{Members: 12, Events: 1, Burst: 0.1, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("packets a minute: %.0f\n", fleet.Idle.Packets)
	fmt.Println("a crash is known within 20 s:", fleet.Events[gossip.Crash][0].Last.Seconds() < 20)
	// Output:
	// packets a minute: 120
	// a crash is known within 20 s: true
}
