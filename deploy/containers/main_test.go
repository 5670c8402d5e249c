package containers

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// enabled by `make test-containers`.
var enabled = os.Getenv("CONTAINER_TESTS") != ""

func TestMain(m *testing.M) {
	if !enabled {
		os.Exit(m.Run())
	}
	// A test that is interrupted must clean up as well.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		if err := remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}()
	code := m.Run()
	signal.Stop(interrupted)
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/ringway/ringway/deploy/containers.TestMain.func1"), goleak.IgnoreAnyFunction("os/signal.loop")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
