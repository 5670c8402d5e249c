package process

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignalsThatComeTogetherAreOneAndASecondOneASecondLaterExitsImmediately(t *testing.T) {
	for name, c := range map[string]struct {
		after []time.Duration // the first signal
		exits bool
	}{
		"at the same instant":          {[]time.Duration{0}, false},
		"within the first second":      {[]time.Duration{0, 500 * time.Millisecond, secondSignal - 1}, false},
		"a second later":               {[]time.Duration{secondSignal}, true},
		"together, and a minute later": {[]time.Duration{0, 0, time.Minute}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, stopped, exits := make(chan os.Signal), make(chan struct{}), make(chan int, 1)
				ctx, cancel := context.WithCancelCause(t.Context())
				cfg := SignalConfig{Logger: slog.New(slog.DiscardHandler), Exit: func(code int) { exits <- code }}
				go cfg.follow(signals, stopped, cancel)
				began := time.Now()
				signals <- syscall.SIGTERM
				<-ctx.Done()
				for _, after := range c.after {
					time.Sleep(time.Until(began.Add(after)))
					signals <- syscall.SIGTERM
				}
				synctest.Wait()
				close(stopped)
				if exited := len(exits) == 1; exited != c.exits {
					t.Errorf("exited: %v, want %v", exited, c.exits)
				}
			})
		})
	}
}
