package validation

import "syscall"

// ownGroup keeps Ctrl-C from a process, which ends with its context, and has the kernel end it
// when this program dies without cleaning up.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
