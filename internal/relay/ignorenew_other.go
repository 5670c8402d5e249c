//go:build !linux

package relay

import "syscall"

// ignoreNew does nothing: this system has no filter for new connections.
func ignoreNew(syscall.Conn) {}

// hasPending reports whether a connection waits to be accepted. It is not known here.
func hasPending(syscall.Conn) bool { return false }
