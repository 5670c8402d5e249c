//go:build unix

package procs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/ringway/ringway/internal/logtest"
)

// Patience limits every wait. Tests wait for states, so the limit is reached only if
// something is broken.
const Patience = 60 * time.Second

// Await polls until reached returns true. Tests that start no process use it too.
func Await(t testing.TB, what string, reached func() bool) {
	t.Helper()
	AwaitFor(t, Patience, what, reached)
}

// AwaitFor is Await with another time limit.
func AwaitFor(t testing.TB, bound time.Duration, what string, reached func() bool) {
	t.Helper()
	deadline, pause := time.Now().Add(bound), time.Millisecond
	for !reached() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached in %v: %s", bound, what)
		}
		time.Sleep(pause)                         // between two checks of the state
		pause = min(2*pause, 20*time.Millisecond) // a state inside of a process is reached sooner
	}
}

// Process is a program that was started.
type Process struct {
	Config Config        // to start it again
	Done   chan struct{} // closed when it has ended and its output is complete

	cmd *exec.Cmd
	log logtest.Log

	mu     sync.Mutex
	ending bool // set when the process is ended
}

// Config configures a process.
type Config struct {
	// Name is the name in messages. Default: Binary.
	Name string
	// Binary is the name of a program that Build created in Dir.
	Binary, Dir string
	Args        []string
	// Env is added to an environment without settings of Ringway.
	Env []string
	// Under is a command that executes the program, such as nsenter with its flags.
	Under []string
	// Sockets are passed to the process as systemd passes sockets, and SocketNames are their
	// names, separated by colons.
	Sockets     []*os.File
	SocketNames string
	// OpenFiles is the limit of open file descriptors, hard limit included. Default 0: that
	// of the tests.
	OpenFiles int
	// Stdio is standard output and standard error of the process. Default: what it writes is
	// kept for Output.
	Stdio *os.File
}

func (c Config) name() string { return cmp.Or(c.Name, c.Binary) }

// command returns the program with its environment, not started yet.
func (c Config) command() *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.Dir, c.Binary), c.Args...)
	if c.OpenFiles > 0 {
		cmd = exec.Command("/bin/sh", slices.Concat([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(c.OpenFiles)}, cmd.Args)...)
	}
	if len(c.Sockets) > 0 {
		passing := fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d LISTEN_FDNAMES=%s; export LISTEN_PID LISTEN_FDS LISTEN_FDNAMES; exec "$0" "$@"`, len(c.Sockets), c.SocketNames)
		cmd = exec.Command("/bin/sh", slices.Concat([]string{"-c", passing}, cmd.Args)...)
		cmd.ExtraFiles = c.Sockets
	}
	if len(c.Under) > 0 {
		cmd = exec.Command(c.Under[0], slices.Concat(c.Under[1:], cmd.Args)...)
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
	p, err := Launch(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.clean(t) })
	return p
}

// Launch starts a process that runs until Kill, or its own end.
func Launch(cfg Config) (*Process, error) {
	p := &Process{Config: cfg, Done: make(chan struct{}), cmd: cfg.command()}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if cfg.Stdio != nil {
		p.cmd.Stdout, p.cmd.Stderr = cfg.Stdio, cfg.Stdio
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name(), err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code has the result
		close(p.Done)
	}()
	return p, nil
}

// Name returns the name of the process in messages.
func (p *Process) Name() string { return p.Config.name() }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the output until now.
func (p *Process) Output() string { return p.log.String() }

// Ended returns an error with the end of the output if the process has ended.
func (p *Process) Ended() error {
	select {
	case <-p.Done:
	default:
		return nil
	}
	text := p.Output()
	return fmt.Errorf("%s ended by itself (%v): %s", p.Name(), p.cmd.ProcessState, text[max(0, len(text)-600):])
}

// state reports whether the process has ended, and whether a caller has ended it.
func (p *Process) state() (ended, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.Done:
		return true, p.ending
	default:
		return false, p.ending
	}
}

// clean ends the process and fails the test after an unexpected end, a data race or a
// panic.
func (p *Process) clean(t testing.TB) {
	if ended, asked := p.state(); !ended {
		p.Kill()
	} else if !asked {
		t.Errorf("%s ended by itself: %v", p.Name(), p.cmd.ProcessState)
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
	if err := p.signal(s); err != nil {
		t.Errorf("send %v to %s: %v", s, p.Name(), err)
	}
}

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	select {
	case <-p.Done: // its id may belong to another process now
		return nil
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Kill sends SIGKILL and waits for the end of the process.
func (p *Process) Kill() {
	if p.signal(syscall.SIGKILL) == nil { // else it is not ours to kill, and does not end
		<-p.Done
	}
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
