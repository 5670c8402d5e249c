package docgen_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringway/ringway/internal/docgen"
)

// The files that `make generate` writes.
func ExampleFiles() {
	for _, path := range slices.Sorted(maps.Keys(docgen.Files("../.."))) {
		fmt.Println(path)
	}
	// Output:
	// docs/projection.svg
	// docs/reference/api/next.txt
	// docs/reference/cli.md
	// docs/reference/flags.md
	// docs/reference/metrics.md
	// docs/reference/relay.schema.json
	// docs/reference/services-file.schema.json
	// docs/reference/worker.schema.json
}
