//go:build unix && !linux

package procs

import "syscall"

// ownGroup gives a process its own process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
