package circuit_test

import (
	"fmt"

	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/selection"
)

// One caller's requests make an endpoint fail; another caller's do not.
func Example() {
	breakers, err := circuit.New(circuit.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, caller := range []string{"reports", "web"} {
		for range 7 {
			ticket, err := breakers.Allow(caller, "billing", "worker-7")
			if err != nil {
				fmt.Printf("%s is refused\n", caller)
				continue
			}
			if caller == "reports" {
				ticket.Done(selection.Failure)
			} else {
				ticket.Done(selection.Success)
			}
		}
	}
	// Output: reports is refused
}
