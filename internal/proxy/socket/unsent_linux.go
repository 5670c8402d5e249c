package socket

import "golang.org/x/sys/unix"

func unsent(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	if err != nil {
		return 0 // the socket of another kind, or one that was closed
	}
	return n
}
