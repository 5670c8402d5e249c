package procs

import "syscall"

// ownGroup gives a process its own process group. The kernel kills the process if the tests
// end without cleanup, as at a timeout.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
