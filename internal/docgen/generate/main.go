// Command generate writes the generated documentation below the given directory.
package main

import (
	"fmt"
	"os"

	"github.com/ringway/ringway/internal/docgen"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate REPOSITORY")
		os.Exit(2)
	}
	if err := docgen.Write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
