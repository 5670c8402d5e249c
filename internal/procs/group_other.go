//go:build unix && !linux

package procs

import "syscall"

// ownGroup gives a process a group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
