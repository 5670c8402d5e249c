package validation_test

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/validation"
)

// The figures that are compared with reality, and their tolerances.
func ExampleNew() {
	for _, p := range validation.New().Promises {
		fmt.Println(p.Name, p.Relation, p.Bound)
	}
	// Output:
	// relays that plan as the model does = 1
	// p50 simulated, off the measured one ≤ 0.15
	// p99 simulated, off the measured one ≤ 0.15
	// balance simulated, off the measured one ≤ 0.05
	// connections opened after a worker's death, off the simulated ones ≤ 0
	// requests that failed ≤ 0
}
