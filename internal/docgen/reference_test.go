package docgen_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ringway/ringway/internal/docgen"
)

func TestTheGeneratedDocumentsAreFresh(t *testing.T) {
	for path, generate := range docgen.Files(filepath.Join("..", "..")) {
		t.Run(path, func(t *testing.T) {
			var want bytes.Buffer
			if err := generate(&want); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join("..", "..", path))
			if err != nil {
				t.Fatalf("%v: run `make generate`", err)
			}
			if diff := cmp.Diff(want.String(), string(got)); diff != "" {
				t.Fatalf("stale, run `make generate` (-want +got):\n%s", diff)
			}
		})
	}
}
