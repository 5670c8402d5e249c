package strategy_test

import (
	"fmt"

	"github.com/ringway/ringway/internal/strategy"
)

// A session stays with one worker; when that fails, the request goes to the next
// one of its key, and the next request of the session tries the first again.
func Example() {
	spec, err := strategy.Parse("stable")
	if err != nil {
		fmt.Println(err)
		return
	}
	workers, err := strategy.New(strategy.Config{Spec: spec, Service: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := workers.Update([]strategy.Endpoint{
		{ID: "w1.1700000000", Node: "w1", Address: "10.0.0.1:8080", Weight: 10},
		{ID: "w2.1700000001", Node: "w2", Address: "10.0.0.2:8080", Weight: 10},
		{ID: "w3.1700000002", Node: "w3", Address: "10.0.0.3:8080", Weight: 10},
	}); err != nil {
		fmt.Println(err)
		return
	}
	var tried []string
	for range 4 {
		e, err := workers.Pick(strategy.Request{Key: "ann", Excluded: [][]string{tried}})
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(e.Node, e.Address)
		tried = append(tried, e.ID) // it failed
	}
	// Output:
	// w3 10.0.0.3:8080
	// w1 10.0.0.1:8080
	// w2 10.0.0.2:8080
	// selection: no available endpoints after considering exclusions: this request has tried them all; return its last error
}

// All mistakes in a setting are reported in one error.
func ExampleParse() {
	spec, err := strategy.Parse("slots; samples=3; vnodes=16")
	fmt.Println(spec, err)
	_, err = strategy.Parse("slots;samples=9;vnodes=0")
	fmt.Println(err)
	_, err = strategy.Parse("manual")
	fmt.Println(err)
	// Output:
	// slots;vnodes=16;samples=3 <nil>
	// selection: parameter vnodes of strategy slots must be in 1..64, not 0
	// selection: parameter samples of strategy slots must be in 1..8, not 9
	// selection: strategy is not configured: strategy manual requires at least one node in preferred
}

// Explain reports what a pick would do, and why.
func ExampleStrategy_Explain() {
	spec, err := strategy.Parse("ordered;preferred=w2")
	if err != nil {
		fmt.Println(err)
		return
	}
	workers, err := strategy.New(strategy.Config{Spec: spec})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := workers.Update([]strategy.Endpoint{{ID: "w1.7", Node: "w1"}, {ID: "w2.3", Node: "w2"}, {ID: "w0.5", Node: "w0"}}); err != nil {
		fmt.Println(err)
		return
	}
	d := workers.Explain(strategy.Request{Excluded: [][]string{{"w2.3"}}})
	for _, c := range d.Candidates {
		fmt.Println(c.Node, c.Score, c.Note)
	}
	fmt.Println(d.Winner.Node, "is", d.Rule)
	// Output:
	// w2 0 excluded by the request
	// w0 1 usable
	// w1 2 usable
	// w0 is the first that is not excluded: the preferred in their order, then the others by node
}
