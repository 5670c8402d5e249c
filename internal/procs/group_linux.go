package procs

import "syscall"

// ownGroup gives a process a group of its own, and has the kernel end it when
// the tests die without cleaning up, as they do at a timeout.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
