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
	directory           string             // of the package, in the repository
	limits              [2]time.Duration   // of the quick tests, and of the others
	slow                string             // a pattern of the tests that run last
	covered             map[string][]block // by file
	planted             planted
}

// block is lines that the tests have run.
type block struct{ from, to int }

// longest is how long the tests without a fault may take.
const longest = 20 * time.Minute

// quick tests run first: most faults are caught within seconds.
const quick = 300 * time.Millisecond

// prepare runs the tests without a fault, which must pass, to learn how long each takes and what they run.
func (b *bench) prepare(ctx context.Context) error {
	if err := b.build(ctx, b.alone(), nil, "-cover"); err != nil {
		return err
	}
	profile := filepath.Join(b.scratch, "profile")
	start := time.Now()
	out, err := b.run(ctx, tests{binary: b.alone(), limit: longest, flags: []string{"-test.v", "-test.coverprofile=" + profile}})
	if err != nil {
		return fmt.Errorf("%s without a fault: %w\n%s", b.directory, err, out)
	}
	var took time.Duration
	b.slow = testsThat(out, func(_ bool, d time.Duration) bool {
		if d <= quick {
			took += d
		}
		return d > quick
	})
	b.limits = [2]time.Duration{4*took + 10*time.Second, 2*time.Since(start) + 10*time.Second}
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	b.covered = blocks(string(text))
	return nil
}

var ended = regexp.MustCompile(`(?m)^--- (PASS|FAIL): (\w+) \((\d+\.\d+s)\)$`)

// noTest is a pattern that matches no test.
const noTest = "^$"

// testsThat returns a pattern of the tests that satisfy a condition, by the output of go test -v.
// It matches no test if there is none.
func testsThat(out string, condition func(passed bool, took time.Duration) bool) string {
	var names []string
	for _, m := range ended.FindAllStringSubmatch(out, -1) {
		if took, err := time.ParseDuration(m[3]); err == nil && condition(m[1] == "PASS", took) {
			names = append(names, m[2])
		}
	}
	if names == nil {
		return noTest
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

var profiled = regexp.MustCompile(`(?m)/([^/]+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ [1-9]\d*$`)

// blocks has the blocks of a profile that ran, by the name of the file without its directory.
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

// try plants a fault and runs the tests. What survives the quick ones next to other faults must survive
// all of them alone.
func (b *bench) try(ctx context.Context, f fault) (result, error) {
	number, planted := b.planted.numbers[f]
	switch {
	case !b.reached(f):
		return unrun, nil
	case planted && number == 0:
		return uncompiled, nil
	case planted:
		t := tests{binary: b.planted.binary, fault: number, limit: b.limits[0], flags: []string{"-test.skip=" + b.planted.skipped}}
		if r, err := b.judge(ctx, t); err != nil || r != survived {
			return r, err
		}
	}
	source, err := os.ReadFile(b.path(f.file))
	if err != nil {
		return 0, err
	}
	if err := b.build(ctx, b.alone(), map[string]string{f.file: string(source[:f.start]) + f.with + string(source[f.end:])}); err != nil {
		return uncompiled, ctx.Err()
	}
	return b.trial(ctx)
}

// trial runs the tests with the one fault that was built alone, the quick ones first.
func (b *bench) trial(ctx context.Context) (result, error) {
	r, err := b.judge(ctx, tests{binary: b.alone(), limit: b.limits[0], flags: []string{"-test.skip=" + b.slow}})
	if err != nil || r != survived {
		return r, err
	}
	return b.judge(ctx, tests{binary: b.alone(), limit: b.limits[1], flags: []string{"-test.run=" + b.slow}})
}

// judge runs tests with a fault.
func (b *bench) judge(ctx context.Context, t tests) (result, error) {
	t.flags = append(t.flags, "-test.failfast")
	out, err := b.run(ctx, t)
	if err != nil && !errors.Is(err, errHung) && ctx.Err() == nil {
		out, err = b.run(ctx, t) // a test that fails by chance, on a busy machine, has caught nothing
	}
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, errHung) || err != nil && strings.Contains(out, "panic: test timed out"):
		return hung, nil
	case err != nil:
		return caught, nil
	}
	return survived, nil
}

func (b *bench) path(file string) string {
	return filepath.Join(b.repository, filepath.FromSlash(file))
}

func (b *bench) alone() string { return filepath.Join(b.scratch, "faulty.test") }

// build compiles the tests with other texts of some files, in which the name of a file may be new.
func (b *bench) build(ctx context.Context, binary string, texts map[string]string, flags ...string) error {
	replaced := map[string]string{}
	for file, text := range texts {
		at := b.path(file)
		replaced[at] = filepath.Join(b.scratch, filepath.Base(file))
		if err := os.WriteFile(replaced[at], []byte(text), 0o600); err != nil {
			return err
		}
	}
	overlay := filepath.Join(b.scratch, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-overlay", overlay, "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+b.directory)...)
	cmd.Dir = b.repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w\n%s", b.directory, err, out)
	}
	return nil
}

var errHung = errors.New("the tests did not end")

// tests of a binary that run with a fault.
type tests struct {
	binary string
	fault  int
	limit  time.Duration
	flags  []string
}

// run runs tests. A fault can make a loop that allocates without an end: the address space is
// bounded.
func (b *bench) run(ctx context.Context, t tests) (string, error) {
	const most = "6000000" // KiB
	limited, cancel := context.WithTimeoutCause(ctx, t.limit+10*time.Second, errHung)
	defer cancel()
	args := append([]string{"-c", `ulimit -v ` + most + `; exec "$0" "$@"`, t.binary,
		"-test.short", "-test.timeout=" + t.limit.String()}, t.flags...)
	cmd := exec.CommandContext(limited, "sh", args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", faultVariable, t.fault),
		"RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=1ms") // a history that fails is of no use
	cmd.Dir = b.path(b.directory)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // tests may start processes
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cause := context.Cause(limited); err != nil && errors.Is(cause, errHung) {
		err = cause
	}
	return string(out), err
}
