//go:build !linux && !darwin

package socket

import "syscall"

const supported = false

func peek(uintptr) (int, syscall.Errno) { return 0, syscall.EINVAL }

func read(uintptr, []byte) (int, syscall.Errno) { return 0, syscall.EINVAL }

func write(uintptr, []byte) (int, syscall.Errno) { return 0, syscall.EINVAL }
