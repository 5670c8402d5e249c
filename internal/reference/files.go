package reference

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ringway/ringway/affinity"
)

//go:generate go run ./generate ../..

// Files are the generated files, by their path in the repository.
func Files() map[string]func(io.Writer) error {
	return map[string]func(io.Writer) error{
		"docs/reference/cli.md":     CLI,
		"docs/reference/flags.md":   Flags,
		"docs/reference/metrics.md": Metrics,
		"docs/projection.svg": func(w io.Writer) error {
			return Projection(w, affinity.Shape{Relays: 8, Workers: 16, Minimums: affinity.DefaultMinimums})
		},
	}
}

// Write writes every file below root.
func Write(root string) error {
	for path, generate := range Files() {
		var b bytes.Buffer
		if err := generate(&b); err != nil {
			return fmt.Errorf("generate %s: %w", path, err)
		}
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
