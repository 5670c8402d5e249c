package process

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// secondSignal is the time after the first signal from which another signal counts as the
// second one. Supervisors, `timeout` and terminals send two signals simultaneously, to the
// process and to its group: these are one request to stop and must not cut the stop short.
// An operator takes longer to send a second signal.
const secondSignal = time.Second

// SignalError is the cause of a context that a signal cancelled.
type SignalError struct {
	Signal os.Signal
}

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprintf("received the signal %q", e.Signal) }

// SignalConfig configures [Signals].
type SignalConfig struct {
	// Logger logs each signal; slog.Default when nil.
	Logger *slog.Logger
	// Exit ends the process at a second signal that comes a second or more after the first;
	// os.Exit in a binary. It is called with 1, on a goroutine of Signals, and need not
	// return. Required.
	Exit func(code int)
	// On are the signals; SIGTERM and SIGINT when empty.
	On []os.Signal
	// Reload is called for each SIGHUP, on a goroutine of Signals and one call at a time;
	// all signals that arrive during a call cause one more call. Default: SIGHUP keeps its
	// default action, which ends the process.
	Reload func()
}

// Signals returns a context that the first signal cancels, with a *[SignalError] as its
// cause. A second signal calls cfg.Exit(1) immediately, so that an operator can end a stop
// that hangs. A signal within a second of the first counts as part of the first.
//
// It starts a goroutine for signals and another for reloads, so that a reload does not
// delay a stop. The stop function cancels the context, restores the default actions of the
// signals and waits for both goroutines; it may be called more than once, but not from
// cfg.Exit or cfg.Reload.
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
	reloads := make(chan os.Signal, 1) // one waiting signal represents all that come during a reload
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

// follow handles signals until stopped is closed or a second signal ends the process.
func (cfg SignalConfig) follow(signals <-chan os.Signal, stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	var first time.Time
	for {
		select {
		case received := <-signals:
			switch name := received.String(); {
			case first.IsZero():
				first = time.Now()
				cfg.Logger.Info("stopping; a second signal exits immediately", "signal", name)
				cancel(&SignalError{Signal: received})
			case time.Since(first) < secondSignal:
				cfg.Logger.Info("signal ignored: it came together with the first; send it again to exit immediately", "signal", name)
			default:
				cfg.Logger.Warn("second signal: exiting immediately", "signal", name)
				cfg.Exit(1)
				return
			}
		case <-stopped:
			return
		}
	}
}

// Notifier reports the state of the process to the service manager that started it, with
// the datagrams of systemd's sd_notify(3). If no service manager asked for notifications,
// every method does nothing. Its methods may be called from any goroutine.
type Notifier struct {
	socket    string
	logger    *slog.Logger
	announced atomic.Bool // READY=1 was sent
}

// NotifySocket is the environment variable with which a service manager asks for
// notifications.
const NotifySocket = "NOTIFY_SOCKET"

// NewNotifier returns a Notifier for the socket that the environment names.
func NewNotifier(logger *slog.Logger) *Notifier {
	return &Notifier{socket: os.Getenv(NotifySocket), logger: logger}
}

// pollInterval is the interval at which Run checks whether the process is ready until the
// process is ready, recheckInterval the interval afterwards, for the status line.
const (
	pollInterval    = 100 * time.Millisecond
	recheckInterval = time.Second
)

// Run sends READY=1 when reasons, which lists why the process should get no traffic,
// returns none for the first time. It keeps the status line up to date, sends STOPPING=1
// when ctx ends, and returns.
func (n *Notifier) Run(ctx context.Context, reasons func() []Reason) {
	if n.socket == "" {
		return
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	said, failed := "", false
	for {
		status := "ready"
		if why := reasons(); len(why) > 0 {
			status = "not ready: " + strings.Join(ReasonTexts(why), "; ")
		} else if !n.announced.Load() {
			// Until it is sent: a manager that never gets it ends the process.
			if err := n.write(ready); err == nil {
				n.announced.Store(true)
				tick.Reset(recheckInterval)
			} else if !failed {
				failed = true
				n.logger.Warn("cannot notify the service manager; trying again", "state", ready, "err", err)
			}
		}
		if status != said {
			said = status
			n.send("STATUS=" + oneLine(status))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.send("STOPPING=1\nSTATUS=stopping: requests in flight finish")
			return
		}
	}
}

// ready is the state of a process that gets traffic.
const ready = "READY=1"

// Reloading wraps reload so that the manager is notified of its begin and its end. Before
// the process is ready, no notification is sent, because the end of a reload is announced
// as READY=1. For nil it returns nil.
func (n *Notifier) Reloading(reload func()) func() {
	if n.socket == "" || reload == nil {
		return reload
	}
	return func() {
		if n.announced.Load() {
			n.send("RELOADING=1")
			defer n.send(ready)
		}
		reload()
	}
}

// send does not block for long, because the manager reads its socket all the time. An error
// is logged: a process must not end because the service manager does not read.
func (n *Notifier) send(state string) {
	if err := n.write(state); err != nil {
		n.logger.Warn("cannot notify the service manager", "state", state, "err", err)
	}
}

func (n *Notifier) write(state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("%s: %w", NotifySocket, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// oneLine removes line breaks, which would start another assignment in the datagram.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }
