package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// secondSignal is how long after the first signal another one counts as a second.
// Supervisors, `timeout` and terminals send two of them at once, to the process and to
// its group: that is one wish to stop, and must not cut the stop short. An operator
// needs longer to find a stop too slow.
const secondSignal = time.Second

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
	// Exit ends the process at the second signal that comes a second or more after
	// the first; os.Exit in a binary. It is called with 1, on a goroutine of Signals,
	// and need not return. Required.
	Exit func(code int)
	// On are the signals; SIGTERM and SIGINT when empty.
	On []os.Signal
	// Reload is called for each SIGHUP, on a goroutine of Signals and one at a
	// time; those that arrive meanwhile call it once more. Default: SIGHUP is left
	// to the system, which ends the process.
	Reload func()
}

// Signals returns a context that the first signal cancels, with a *[SignalError]
// as its cause. A second signal calls cfg.Exit(1) at once, so that an operator is
// never stuck with a stop that hangs. One that comes within a second of the first is
// taken for a part of it.
//
// It starts a goroutine, and one for reloads, so that they hold up no stop. The
// stop function cancels the context, gives the signals back to the system and
// waits for both; it may be called more than once, but not from inside cfg.Exit or
// cfg.Reload.
func Signals(parent context.Context, cfg SignalConfig) (ctx context.Context, stop func()) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
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

	running.Go(func() { cfg.follow(signals, stopped, cancel) })
	reloads := make(chan os.Signal, 1) // the next one stands for all that come meanwhile
	if cfg.Reload != nil {
		signal.Notify(reloads, syscall.SIGHUP)
		running.Go(func() {
			for {
				select {
				case received := <-reloads:
					cfg.Logger.Info("reloading", "signal", received.String())
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

// follow acts on signals until stopped is closed or a second one ends the process.
func (cfg SignalConfig) follow(signals <-chan os.Signal, stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	var first time.Time
	for {
		select {
		case received := <-signals:
			switch name := received.String(); {
			case first.IsZero():
				first = time.Now()
				cfg.Logger.Info("stopping; a second signal exits at once", "signal", name)
				cancel(&SignalError{Signal: received})
			case time.Since(first) < secondSignal:
				cfg.Logger.Info("signal ignored: it came together with the first; send it again to exit at once", "signal", name)
			default:
				cfg.Logger.Warn("second signal: exiting at once", "signal", name)
				cfg.Exit(1)
				return
			}
		case <-stopped:
			return
		}
	}
}
