package budget_test

import (
	"fmt"

	"github.com/ringway/ringway/selection/budget"
)

// Everything fails, and everybody would try again.
func Example() {
	retries := budget.New(0.2, 3)
	attempts := 0
	for range 100 {
		retries.Earn()
		attempts++
		if retries.Spend() {
			attempts++
		}
	}
	fmt.Printf("100 requests, %d attempts\n", attempts)
	// Output: 100 requests, 122 attempts
}
