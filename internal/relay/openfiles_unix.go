//go:build unix

package relay

import (
	"math"
	"os"
	"syscall"

	"github.com/ringway/ringway/internal/relay/check"
)

// openFiles counts the descriptors of this process, where there is a directory of
// them, and says how many there may be.
func openFiles() (d check.Descriptors) {
	d.Limit = fileLimit()
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		d.Open = len(entries)
	}
	return d
}

// fileLimit is how many descriptors this process may have, 0 where that is unknown.
func fileLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
