package reference_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringway/ringway/internal/reference"
)

// The files that `make generate` writes.
func ExampleFiles() {
	for _, path := range slices.Sorted(maps.Keys(reference.Files("../.."))) {
		fmt.Println(path)
	}
	// Output:
	// docs/projection.svg
	// docs/reference/api/next.txt
	// docs/reference/cli.md
	// docs/reference/flags.md
	// docs/reference/metrics.md
}
