//go:build unix

package databases

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// enabled by `make test-tcp`.
var enabled = os.Getenv("TCP_TESTS") != ""

func TestMain(m *testing.M) {
	// A probe of memberlist ends by itself within a second of the shutdown.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

func needed(t *testing.T) {
	t.Helper()
	if !enabled {
		t.Skip("needs redis-server and postgresql: make test-tcp")
	}
	t.Parallel()
}
