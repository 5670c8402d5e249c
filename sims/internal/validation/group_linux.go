package validation

import "syscall"

// ownGroup puts a process into a separate process group, so that Ctrl-C does not reach the
// process (its context ends the process). The kernel kills the process if this program dies
// without cleaning up.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
