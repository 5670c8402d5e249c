//go:build unix

package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. Tests wait for states, so it is reached only when
// something is broken.
const patience = 60 * time.Second

// await polls until the state is there.
func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	awaitFor(t, patience, what, reached)
}

// awaitFor is await for states that take longer than most.
func awaitFor(t *testing.T, bound time.Duration, what string, reached func() bool) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for !reached() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached in %v: %s", bound, what)
		}
		time.Sleep(20 * time.Millisecond) // between two looks at the state
	}
}

// process is a program that a test started.
type process struct {
	name   string
	config processConfig // to start it again
	cmd    *exec.Cmd
	log    output
	done   chan struct{} // closed when it has ended and its output is complete

	mu     sync.Mutex
	ending bool // a test asked for its end
}

// processConfig says what to start.
type processConfig struct {
	// Name is for messages.
	Name string
	// Binary is one of those that build made, in Dir; default: in binaries.
	Binary, Dir string
	Args        []string
	// Env is added to an environment without settings of Ringway.
	Env []string
}

// start starts a process that ends with the test at the latest.
func start(t *testing.T, cfg processConfig) *process {
	t.Helper()
	p := &process{name: cfg.Name, config: cfg, done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(cmp.Or(cfg.Dir, binaries), cfg.Binary), cfg.Args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RINGWAY_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, cfg.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code tells
		close(p.done)
	}()
	t.Cleanup(func() { p.clean(t) })
	return p
}

// clean ends what is left of the process and judges how it lived.
func (p *process) clean(t *testing.T) {
	p.mu.Lock()
	asked := p.ending
	p.mu.Unlock()
	select {
	case <-p.done:
		if !asked {
			t.Errorf("%s ended by itself: %v", p.name, p.cmd.ProcessState)
		}
	default:
		p.signal(t, syscall.SIGKILL)
		<-p.done
	}
	text := p.log.String()
	for _, bad := range []string{"WARNING: DATA RACE", "\npanic: ", "fatal error: "} {
		if strings.Contains(text, bad) {
			t.Errorf("%s: %q in its output", p.name, strings.TrimSpace(bad))
		}
	}
	if t.Failed() {
		t.Logf("output of %s (%v):\n%s", p.name, p.cmd.ProcessState, shorten(text))
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

// signal sends a signal to the whole group of the process.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	select {
	case <-p.done: // its number may belong to somebody else by now
		return
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("send %v to %s: %v", s, p.name, err)
	}
}

// kill is kill -9, and waits until nothing is left.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.done
}

// exit waits for the end and returns the exit code, -1 for a signal.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s still runs after %v", p.name, patience)
		return -1
	}
}

// logged reports whether a line of the JSON log has all the given parts of
// message and err.
func (p *process) logged(message, err string) bool {
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
