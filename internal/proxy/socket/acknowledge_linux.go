//go:build linux && (race || msan || asan)

package socket

import "syscall"

// For sanitizers; calls_linux.go has that of programs.
func acknowledge(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1) // it fails for other sockets
}
