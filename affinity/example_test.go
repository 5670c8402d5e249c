package affinity_test

import (
	"fmt"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// Which relay connects to which worker: three relays and seven workers. With three relays per worker and
// three relays in all, all relays are connected to all workers.
func Example() {
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service: "billing",
		Relays:  affinity.Relays([]string{"relay-a", "relay-b", "relay-c"}),
		Workers: affinity.Workers([]string{"w1", "w2", "w3", "w4", "w5", "w6", "w7"}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the worker ring:", strings.Join(plan.Workers(), " "))
	for i, relay := range plan.Affine() {
		ranges, _ := plan.Ranges(i)
		assignments, _ := plan.Assignments(i)
		fmt.Printf("%s connects to %v:", relay, ranges[0])
		for _, a := range assignments {
			fmt.Printf(" %s", a.Worker)
		}
		fmt.Printf(", giving each %.3f of its traffic\n", assignments[0].Weight)
	}
	c := plan.Coverage()
	fmt.Printf("every worker has %d relays; %d connections in all\n", c.Min, c.Connections)
	// Output:
	// the worker ring: w3 w6 w7 w1 w5 w4 w2
	// relay-c connects to [0..7) of 7 (all): w3 w6 w7 w1 w5 w4 w2, giving each 0.143 of its traffic
	// relay-b connects to [0..7) of 7 (all): w7 w1 w5 w4 w2 w3 w6, giving each 0.143 of its traffic
	// relay-a connects to [0..7) of 7 (all): w4 w2 w3 w6 w7 w1 w5, giving each 0.143 of its traffic
	// every worker has 3 relays; 21 connections in all
}

// Two relays more, and each holds a part of the ring only. Ranges differ by one worker;
// the weights make up for it, so that every worker still carries 5/7 of a relay's traffic.
func ExamplePlan() {
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service: "billing",
		Relays:  affinity.Relays([]string{"relay-a", "relay-b", "relay-c", "relay-d", "relay-e"}),
		Workers: affinity.Workers([]string{"w1", "w2", "w3", "w4", "w5", "w6", "w7"}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	load := map[string]float64{}
	for i, relay := range plan.Affine() {
		ranges, _ := plan.Ranges(i)
		assignments, _ := plan.Assignments(i)
		fmt.Printf("%s %v:", relay, ranges[0])
		for _, a := range assignments {
			fmt.Printf(" %s %.3f", a.Worker, a.Weight)
			load[a.Worker] += a.Weight
		}
		fmt.Println()
	}
	fmt.Print("load:")
	for _, worker := range plan.Workers() {
		fmt.Printf(" %s %.3f", worker, load[worker])
	}
	fmt.Println()
	// Output:
	// relay-c [0..4) of 7: w3 0.190 w6 0.274 w7 0.274 w1 0.262
	// relay-d [1..6) of 7: w6 0.202 w7 0.202 w1 0.190 w5 0.202 w4 0.202
	// relay-e [3..7) of 7: w1 0.262 w5 0.274 w4 0.274 w2 0.190
	// relay-a [4..1) of 7: w5 0.238 w4 0.238 w2 0.190 w3 0.333
	// relay-b [6..3) of 7: w2 0.333 w3 0.190 w6 0.238 w7 0.238
	// load: w3 0.714 w6 0.714 w7 0.714 w1 0.714 w5 0.714 w4 0.714 w2 0.714
}

// A datacenter with too few workers takes in the rest of its region.
func ExamplePlan_Explain() {
	fra, par := affinity.Place{Datacenter: "fra", Region: "eu"}, affinity.Place{Datacenter: "par", Region: "eu"}
	cfg := affinity.PlanConfig{Service: "billing", Workers: []affinity.Worker{{ID: "par-1", Place: par}}}
	for i := range 4 {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("relay-fra-", i), Place: fra})
	}
	cfg.Relays = append(cfg.Relays, affinity.Relay{ID: "relay-par-0", Place: par})
	for i := range 9 {
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("fra-", i), Place: fra})
	}
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Explain("relay-par-0", "fra-3"))
	fmt.Print(plan.Draw("relay-par-0", "fra-3"))
	// Output:
	// all relays of this ring (1) connect to all of its workers (9)
	// billing: ring of 1 worker, 1 relay (home)
	// > relay-par-0 #
	// billing: ring of 9 workers, 1 relay (home)
	// > relay-par-0 #########
	//                    ^ fra-3, position 5
}

// The arithmetic alone, without names: which of 100 workers the last of 12 relays takes.
func ExampleShape_Range() {
	shape := affinity.Shape{Relays: 12, Workers: 100, Minimums: affinity.DefaultMinimums}
	r, err := shape.Range(11)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r, r.Len())
	// Output:
	// [92..17) of 100 25
}
