//go:build unix

package procs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait. Tests wait for states, so it is reached only when
// something is broken.
const Patience = 60 * time.Second

// Await polls until the state is there.
func Await(t testing.TB, what string, reached func() bool) {
	t.Helper()
	AwaitFor(t, Patience, what, reached)
}

// AwaitFor is Await for states that take longer than most.
func AwaitFor(t testing.TB, bound time.Duration, what string, reached func() bool) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for !reached() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached in %v: %s", bound, what)
		}
		time.Sleep(20 * time.Millisecond) // between two looks at the state
	}
}

// Process is a program that a test started.
type Process struct {
	Config Config        // to start it again
	Done   chan struct{} // closed when it has ended and its output is complete

	cmd *exec.Cmd
	log output

	mu     sync.Mutex
	ending bool // a test asked for its end
}

// Config says what to start.
type Config struct {
	// Name is for messages. Default: Binary.
	Name string
	// Binary is one of those that Build made in Dir.
	Binary, Dir string
	Args        []string
	// Env is added to an environment without settings of Ringway.
	Env []string
	// OpenFiles is how many descriptors the process may have, hard limit included.
	// Default 0: as many as the tests.
	OpenFiles int
}

func (c Config) name() string { return cmp.Or(c.Name, c.Binary) }

// command is the program with its environment, not yet started.
func (c Config) command() *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.Dir, c.Binary), c.Args...)
	if c.OpenFiles > 0 {
		cmd = exec.Command("/bin/sh", slices.Concat([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(c.OpenFiles)}, cmd.Args)...)
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RINGWAY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Start starts a process that ends with the test at the latest.
func Start(t testing.TB, cfg Config) *Process {
	t.Helper()
	p := &Process{Config: cfg, Done: make(chan struct{}), cmd: cfg.command()}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name(), err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code tells
		close(p.Done)
	}()
	t.Cleanup(func() { p.clean(t) })
	return p
}

// Name is the process in messages.
func (p *Process) Name() string { return p.Config.name() }

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is all that it wrote until now.
func (p *Process) Output() string { return p.log.String() }

// clean ends what is left of the process and judges how it lived.
func (p *Process) clean(t testing.TB) {
	p.mu.Lock()
	asked := p.ending
	p.mu.Unlock()
	select {
	case <-p.Done:
		if !asked {
			t.Errorf("%s ended by itself: %v", p.Name(), p.cmd.ProcessState)
		}
	default:
		p.Signal(t, syscall.SIGKILL)
		<-p.Done
	}
	text := p.log.String()
	for _, bad := range []string{"WARNING: DATA RACE", "\npanic: ", "fatal error: "} {
		if strings.Contains(text, bad) {
			t.Errorf("%s: %q in its output", p.Name(), strings.TrimSpace(bad))
		}
	}
	if t.Failed() {
		t.Logf("output of %s (%v):\n%s", p.Name(), p.cmd.ProcessState, shorten(text))
	}
}

// shorten keeps the beginning and the end of a long output.
func shorten(text string) string {
	const half = 16 << 10
	if len(text) <= 2*half {
		return text
	}
	return text[:half] + "\n…\n" + text[len(text)-half:]
}

// Signal sends a signal to the whole group of the process.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	select {
	case <-p.Done: // its number may belong to another process by now
		return
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("send %v to %s: %v", s, p.Name(), err)
	}
}

// Kill is kill -9, and waits until nothing is left.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	<-p.Done
}

// Exit waits for the end and returns the exit code, -1 for a signal.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	select {
	case <-p.Done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatalf("%s still runs after %v", p.Name(), Patience)
		return -1
	}
}

// Logged reports whether a line of the JSON log has all the given parts of
// message and err.
func (p *Process) Logged(message, err string) bool {
	for line := range strings.Lines(p.log.String()) {
		var record struct{ Message, Err string }
		if json.Unmarshal([]byte(line), &record) == nil &&
			strings.Contains(record.Message, message) && strings.Contains(record.Err, err) {
			return true
		}
	}
	return false
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
