//go:build !linux

package socket

func unsent(uintptr) int { return 0 }
