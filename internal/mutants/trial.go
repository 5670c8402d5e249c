package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type result int

const (
	caught result = iota
	hung          // caught, by the limit of time
	survived
	unrun // survived: no test comes there
	uncompiled
)

func (r result) String() string {
	return [...]string{"caught", "caught (hung)", "survived", "survived (no test comes there)", "not compiled"}[r]
}

// bench tries the faults of one package.
type bench struct {
	repository, scratch string
	directory           string // of the package, in the repository
	limit               time.Duration
	slow                string             // a pattern of the tests that run last
	covered             map[string][]block // by file
}

// block is lines that the tests have run.
type block struct{ from, to int }

// longest is how long the tests without a fault may take.
const longest = 10 * time.Minute

// quick tests run first: most faults are caught within seconds.
const quick = 300 * time.Millisecond

// prepare runs the tests without a fault, which must pass, to learn how long each takes and what they run.
func (b *bench) prepare(ctx context.Context) error {
	if err := b.build(ctx, "-cover"); err != nil {
		return err
	}
	profile := filepath.Join(b.scratch, "profile")
	b.limit = longest
	start := time.Now()
	out, err := b.run(ctx, "-test.v", "-test.coverprofile="+profile)
	if err != nil {
		return fmt.Errorf("%s without a fault: %w\n%s", b.directory, err, out)
	}
	b.limit = 2*time.Since(start) + 10*time.Second
	b.slow = slowTests(out)
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	b.covered = blocks(string(text))
	return nil
}

var timed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \((\d+\.\d+)s\)$`)

// slowTests is a pattern of the tests that are not quick, by the output of go test -v. It matches
// no test if there is none.
func slowTests(out string) string {
	slow := []string{"none"}
	for _, m := range timed.FindAllStringSubmatch(out, -1) {
		if took, err := time.ParseDuration(m[2] + "s"); err == nil && took > quick {
			slow = append(slow, m[1])
		}
	}
	return "^(" + strings.Join(slow, "|") + ")$"
}

var profiled = regexp.MustCompile(`(?m)/([^/]+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ [1-9]\d*$`)

// blocks are those of a profile that ran, by the name of the file without its directory.
func blocks(profile string) map[string][]block {
	ran := map[string][]block{}
	for _, m := range profiled.FindAllStringSubmatch(profile, -1) {
		from, _ := strconv.Atoi(m[2]) // digits only
		to, _ := strconv.Atoi(m[3])
		ran[m[1]] = append(ran[m[1]], block{from, to})
	}
	return ran
}

// reached reports whether a test runs the line of a fault.
func (b *bench) reached(f fault) bool {
	for _, block := range b.covered[filepath.Base(f.file)] {
		if block.from <= f.line && f.line <= block.to {
			return true
		}
	}
	return false
}

// try plants a fault and runs the tests.
func (b *bench) try(ctx context.Context, f fault) (result, error) {
	if !b.reached(f) {
		return unrun, nil
	}
	original := filepath.Join(b.repository, filepath.FromSlash(f.file))
	source, err := os.ReadFile(original)
	if err != nil {
		return 0, err
	}
	faulty := filepath.Join(b.scratch, "faulty.go")
	if err := os.WriteFile(faulty, []byte(string(source[:f.start])+f.with+string(source[f.end:])), 0o600); err != nil {
		return 0, err
	}
	overlay := filepath.Join(b.scratch, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: faulty}})
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return 0, err
	}
	if err := b.build(ctx, "-overlay", overlay); err != nil {
		return uncompiled, ctx.Err()
	}
	for _, tests := range []string{"-test.skip=" + b.slow, "-test.run=" + b.slow} {
		out, err := b.run(ctx, tests)
		if err != nil && !errors.Is(err, errHung) && ctx.Err() == nil {
			out, err = b.run(ctx, tests) // a test that fails by chance, on a busy machine, has caught nothing
		}
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.Is(err, errHung) || err != nil && strings.Contains(out, "panic: test timed out"):
			return hung, nil
		case err != nil:
			return caught, nil
		}
	}
	return survived, nil
}

func (b *bench) binary() string { return filepath.Join(b.scratch, "faulty.test") }

func (b *bench) build(ctx context.Context, flags ...string) error {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", b.binary()}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+b.directory)...)
	cmd.Dir = b.repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w\n%s", b.directory, err, out)
	}
	return nil
}

var errHung = errors.New("the tests did not end")

// run runs the tests that were built. A fault can make a loop that allocates without an end: the
// address space is bounded.
func (b *bench) run(ctx context.Context, flags ...string) (string, error) {
	const most = "6000000" // KiB
	limited, cancel := context.WithTimeoutCause(ctx, b.limit+10*time.Second, errHung)
	defer cancel()
	args := append([]string{"-c", `ulimit -v ` + most + `; exec "$0" "$@"`, b.binary(),
		"-test.short", "-test.failfast", "-test.timeout=" + b.limit.String()}, flags...)
	cmd := exec.CommandContext(limited, "sh", args...)
	cmd.Dir = filepath.Join(b.repository, filepath.FromSlash(b.directory))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // tests may start processes
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cause := context.Cause(limited); err != nil && errors.Is(cause, errHung) {
		err = cause
	}
	return string(out), err
}
