//go:build !linux

package relay

import "syscall"

// ignoreNew does nothing: this system has no filter for new connections.
func ignoreNew(syscall.Conn) {}
