//go:build !linux

package validation

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
