package handshake

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readDebt reports whether the other end has not acknowledged everything, and how long ago its system
// sent something.
func readDebt(raw syscall.RawConn) (owed bool, silent time.Duration, err error) {
	closed := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err != nil {
			return
		}
		silent = time.Duration(info.Last_ack_recv) * time.Millisecond
		var n int
		n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		owed = n > 0
	})
	if closed != nil {
		err = closed
	}
	return owed, silent, err
}
