//go:build darwin || (linux && (race || msan || asan))

package socket

import "syscall"

const supported = true

// peek inspects the first byte that has arrived.
func peek(fd uintptr) (int, syscall.Errno) {
	var first [1]byte
	n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return known(n, err)
}

func read(fd uintptr, b []byte) (int, syscall.Errno) { return known(syscall.Read(int(fd), b)) }

func write(fd uintptr, b []byte) (int, syscall.Errno) { return known(syscall.Write(int(fd), b)) }
