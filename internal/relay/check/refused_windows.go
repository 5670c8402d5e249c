package check

import (
	"errors"
	"syscall"
)

// wsaConnRefused is WSAECONNREFUSED.
const wsaConnRefused = syscall.Errno(10061)

func isRefused(err error) bool { return errors.Is(err, wsaConnRefused) }
