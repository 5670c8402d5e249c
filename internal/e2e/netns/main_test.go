//go:build linux

package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/procs"
)

// enabled by `make test-netns`.
var enabled = os.Getenv("NETNS_TESTS") != ""

// binaries is where the programs are. It is set in the process that has a namespace of
// its own, in which the tests run.
var binaries = os.Getenv("NETNS_BINARIES")

func TestMain(m *testing.M) {
	switch {
	case enabled && binaries == "":
		code, err := inside()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	case enabled:
		if err := command("ip", "link", "set", "lo", "up"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// inside builds the programs and runs the tests in a network namespace of their own,
// and in a user namespace unless root runs them.
func inside() (code int, err error) {
	dir, err := os.MkdirTemp("", "ringway-netns-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := procs.Build(filepath.Join("..", "..", ".."), dir, false, "./cmd/relay", "./cmd/worker", "./internal/e2e/backend"); err != nil {
		return 1, err
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started it ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "NETNS_BINARIES="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err = cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return max(1, failed.ExitCode()), nil // the tests have reported the reason
	}
	if err != nil {
		return 1, fmt.Errorf("run the tests in a network namespace: %w", err)
	}
	return 0, nil
}
