//go:build unix

package large

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// workersVariable has the configuration of a process of workers, which is this test program.
const workersVariable = "LARGE_WORKERS"

func TestMain(m *testing.M) {
	if config := os.Getenv(workersVariable); config != "" {
		if err := serveWorkers(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
