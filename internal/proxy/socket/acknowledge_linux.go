package socket

import "syscall"

func acknowledge(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1) // it fails for other sockets
}
