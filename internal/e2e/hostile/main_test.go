//go:build linux

package hostile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/procs"
)

// binaries is where the programs are, built once for all tests, without the race
// detector: tests of memory and time measure them.
var binaries string

// attacked names a directory with programs to attack in place of those of this checkout, such as
// those of an earlier release, which then fails the tests of what it did not mend.
const attacked = "ATTACKED_BINARIES"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// These tests wait for other processes far more than they compute.
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "ringway-hostile-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if binaries = os.Getenv(attacked); binaries == "" {
		binaries = dir
		if err := procs.Build(filepath.Join("..", "..", ".."), dir, false, "./cmd/relay", "./cmd/worker"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
