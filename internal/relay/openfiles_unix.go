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
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		d.Limit = int(min(uint64(limit.Cur), math.MaxInt32))
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		d.Open = len(entries)
	}
	return d
}
