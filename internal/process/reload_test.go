package process_test

import (
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/process"
)

func TestAHangUpReloadsAndStopsNothing(t *testing.T) {
	began, proceed := make(chan struct{}, 10), make(chan struct{})
	ctx, stop := process.Signals(t.Context(), process.SignalConfig{
		Logger: slog.New(slog.DiscardHandler),
		Exit:   func(code int) { t.Errorf("exit %d", code) },
		On:     []os.Signal{syscall.SIGWINCH},
		Reload: func() {
			began <- struct{}{}
			<-proceed
		},
	})
	raise := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	raise(syscall.SIGHUP)
	<-began
	for range 3 { // during a reload: at least one more
		raise(syscall.SIGHUP)
	}
	proceed <- struct{}{}
	<-began
	if ctx.Err() != nil {
		t.Error("a reload stops the daemon")
	}
	raise(syscall.SIGWINCH)
	<-ctx.Done() // although a reload hangs
	close(proceed)
	stop() // waits for the reload
}
