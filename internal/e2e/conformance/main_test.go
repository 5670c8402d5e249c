//go:build unix

package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// binaries is where relay and worker are, and in official the client and the server of
// gRPC: all are built once for all tests.
var binaries, official string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// These tests wait for other processes far more than they compute.
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "ringway-conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries, official = filepath.Join(dir, "ringway"), filepath.Join(dir, "grpc")
	for _, b := range []struct {
		root, dir string
		packages  []string
	}{
		// Our programs are built with the versions of our module, not of this one.
		{filepath.Join("..", "..", ".."), binaries, []string{"./cmd/relay", "./cmd/worker"}},
		{".", official, []string{"google.golang.org/grpc/interop/client", "google.golang.org/grpc/interop/server"}},
	} {
		if err := procs.Build(b.root, b.dir, false, b.packages...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}
