package process_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/process"
)

// childEnv makes this test binary behave like a daemon; see TestMain.
const childEnv = "RINGWAY_TEST_DAEMON"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		runChild(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

// runChild is a daemon that prints its address on standard output. In mode "hang"
// its stop never ends.
func runChild(mode string) {
	ctx, stop := process.Signals(context.Background(), process.SignalConfig{
		Logger: slog.New(slog.DiscardHandler),
		Exit:   os.Exit,
	})
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println("stopping:", context.Cause(ctx))
	if mode == "hang" {
		select {}
	}
	stop()
	fmt.Println("stopped")
}
