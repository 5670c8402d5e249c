// The plan alone: who would connect to whom in a fleet that does not exist yet.
// There is no network in it.
package main

import (
	"fmt"
	"log"

	"github.com/ringway/ringway/affinity"
)

func main() {
	var relays, workers []string
	for i := range 20 {
		relays = append(relays, fmt.Sprintf("relay-%d", i))
	}
	for i := range 500 {
		workers = append(workers, fmt.Sprintf("worker-%d", i))
	}
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service: "billing", Relays: affinity.Relays(relays), Workers: affinity.Workers(workers),
		RelaysPerService: 10, Minimums: affinity.Minimums{PeersPerWorker: 4, PeersPerRelay: 3},
	})
	if err != nil {
		log.Fatal(err)
	}
	for i, relay := range plan.Affine()[:2] {
		assignments, err := plan.Assignments(i)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(relay, "connects to", len(assignments), "workers, first to", assignments[0].Worker)
	}
	c := plan.Coverage()
	fmt.Println("relays per worker:", c.Min, "to", c.Max, "connections:", c.Connections)
	fmt.Println(plan.Explain(plan.Affine()[0], "worker-7"))
}
