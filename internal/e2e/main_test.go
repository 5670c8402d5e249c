//go:build unix

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/procs"
)

// binaries is where the programs are, built once for all tests.
var binaries string

// plainBinaries is where programs without the race detector are, for everything that is
// measured, and for commands that a test runs by the dozen. They are built when
// first asked for.
var plainBinaries = sync.OnceValues(func() (string, error) {
	if !raceDetector {
		return binaries, nil
	}
	dir := filepath.Join(binaries, "plain")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, build(dir, false)
})

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(curlVariable) != "" {
		return curl(os.Args[1:])
	}
	flag.Parse()
	// These tests wait for other processes far more than they compute.
	parallel := "16"
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" { // it was chosen
			parallel = f.Value.String()
		}
	})
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "ringway-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := build(dir, raceDetector); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func build(dir string, race bool) error {
	return procs.Build(filepath.Join("..", ".."), dir, race, "./cmd/relay", "./cmd/worker", "./internal/e2e/backend")
}
