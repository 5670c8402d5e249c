//go:build unix

package relay

import (
	"math"
	"os"
	"syscall"

	"github.com/ringway/ringway/internal/relay/check"
)

// openFiles returns the number of open descriptors of this process, if /proc shows it, and
// their limit.
func openFiles() (d check.Descriptors) {
	d.Limit = fileLimit()
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		d.Open = len(entries)
	}
	return d
}

// fileLimit returns how many descriptors this process may open, 0 if unknown.
func fileLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
