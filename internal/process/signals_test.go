package process_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/process"
)

// child is a real daemon process: this test binary, started once more.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, mode string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self) // killed when the test ends
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, lines: bufio.NewScanner(out)}
	c.expect("running")
	return c
}

func (c *child) expect(line string) {
	c.t.Helper()
	if !c.lines.Scan() || c.lines.Text() != line {
		c.t.Fatalf("the daemon says %q (%v), want %q", c.lines.Text(), c.lines.Err(), line)
	}
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// exitCode waits for the end; -1 when a signal killed the process.
func (c *child) exitCode() int {
	c.t.Helper()
	for c.lines.Scan() { // Wait must not close the pipe before it is read
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

func TestTheFirstSignalStopsGracefullyAndTheProcessExitsWith0(t *testing.T) {
	for _, s := range []struct {
		signal os.Signal
		name   string
	}{{syscall.SIGTERM, "terminated"}, {os.Interrupt, "interrupt"}} {
		c := start(t, "graceful")
		c.signal(s.signal)
		c.expect(`stopping: received the signal "` + s.name + `"`)
		c.expect("stopped")
		if code := c.exitCode(); code != 0 {
			t.Errorf("%s: exit code %d, want 0", s.name, code)
		}
	}
}

func TestASecondSignalExitsImmediatelyWith1(t *testing.T) {
	c := start(t, "hang")
	c.signal(os.Interrupt)
	c.expect(`stopping: received the signal "interrupt"`)
	ended := make(chan int, 1)
	go func() { ended <- c.exitCode() }()
	again := time.NewTicker(100 * time.Millisecond) // those of the first second do not count
	defer again.Stop()
	for {
		select {
		case code := <-ended:
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			return
		case <-again.C:
			if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		}
	}
}

func TestTheSignalIsTheCauseOfTheCancelledContext(t *testing.T) {
	exits := make(chan int, 1)
	ctx, stop := process.Signals(t.Context(), process.SignalConfig{
		Logger: slog.New(slog.DiscardHandler),
		Exit:   func(code int) { exits <- code },
		On:     []os.Signal{syscall.SIGUSR1},
	})
	defer stop()
	raise := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	raise()
	<-ctx.Done()
	var cause *process.SignalError
	if !errors.As(context.Cause(ctx), &cause) || cause.Signal != syscall.SIGUSR1 {
		t.Errorf("cause is %v", context.Cause(ctx))
	}
	if len(exits) != 0 {
		t.Error("the first signal exits")
	}
	again := time.NewTicker(100 * time.Millisecond) // those of the first second do not count
	defer again.Stop()
	for {
		select {
		case code := <-exits:
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			return
		case <-again.C:
			raise()
		}
	}
}

func TestStopCancelsTheContextAndMayBeCalledTwice(t *testing.T) {
	ctx, stop := process.Signals(t.Context(), process.SignalConfig{
		Logger: slog.New(slog.DiscardHandler),
		Exit:   func(code int) { t.Errorf("exit %d", code) },
		On:     []os.Signal{syscall.SIGUSR2},
	})
	stop()
	stop()
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("after stop: err %v, cause %v", ctx.Err(), context.Cause(ctx))
	}
}
