//go:build !linux

package handshake

import (
	"errors"
	"syscall"
	"time"
)

// readDebt needs Linux.
func readDebt(syscall.RawConn) (bool, time.Duration, error) { return false, 0, errors.ErrUnsupported }
