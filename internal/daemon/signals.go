package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SignalError is the cause of a context that a signal cancelled.
type SignalError struct {
	Signal os.Signal
}

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprintf("received the signal %q", e.Signal) }

// SignalConfig says how [Signals] reacts.
type SignalConfig struct {
	// Logger hears of each signal; slog.Default when nil.
	Logger *slog.Logger
	// Exit ends the process after the second signal; os.Exit in a binary. It is
	// called with 1, on a goroutine of Signals, and need not return. Required.
	Exit func(code int)
	// On are the signals; SIGTERM and SIGINT when empty.
	On []os.Signal
	// Reload is called for each SIGHUP, on a goroutine of Signals and one at a
	// time; those that arrive meanwhile call it once more. Default: SIGHUP is left
	// to the system, which ends the process.
	Reload func()
}

// Signals returns a context that the first signal cancels, with a *[SignalError]
// as its cause. The second signal calls cfg.Exit(1) at once, so that an operator
// is never stuck with a stop that hangs.
//
// It starts a goroutine, and one for reloads, so that they hold up no stop. The
// stop function cancels the context, gives the signals back to the system and
// waits for both; it may be called more than once, but not from inside cfg.Exit or
// cfg.Reload.
func Signals(parent context.Context, cfg SignalConfig) (ctx context.Context, stop func()) {
	logger := cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	on := cfg.On
	if len(on) == 0 {
		on = []os.Signal{syscall.SIGTERM, os.Interrupt}
	}
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2) // a quick second signal must not be lost
	signal.Notify(signals, on...)
	stopped := make(chan struct{})
	var running sync.WaitGroup

	running.Go(func() {
		for first := true; ; first = false {
			select {
			case received := <-signals:
				if !first {
					logger.Warn("second signal: exiting at once", "signal", received.String())
					cfg.Exit(1)
					return
				}
				logger.Info("stopping; a second signal exits at once", "signal", received.String())
				cancel(&SignalError{Signal: received})
			case <-stopped:
				return
			}
		}
	})
	reloads := make(chan os.Signal, 1) // the next one stands for all that come meanwhile
	if cfg.Reload != nil {
		signal.Notify(reloads, syscall.SIGHUP)
		running.Go(func() {
			for {
				select {
				case received := <-reloads:
					logger.Info("reloading", "signal", received.String())
					cfg.Reload()
				case <-stopped:
					return
				}
			}
		})
	}

	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			signal.Stop(signals)
			signal.Stop(reloads)
			close(stopped)
			cancel(context.Canceled)
		})
		running.Wait()
	}
}
