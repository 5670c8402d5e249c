// The plan of a fleet that does not exist yet. No network is needed.
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
	assignments, err := plan.Assignments(0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Affine()[0], "connects to", len(assignments), "workers, first to", assignments[0].Worker)
	c := plan.Coverage()
	fmt.Println("relays per worker:", c.Min, "to", c.Max, "connections:", c.Connections)
	fmt.Println(plan.Explain(plan.Affine()[0], "worker-7"))
}
