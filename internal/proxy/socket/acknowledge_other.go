//go:build !linux

package socket

func acknowledge(uintptr) {}
