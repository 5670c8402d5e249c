package process

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is the part of a control group's limit that Go may use, in percent. The rest is for the
// buffers of sockets and pages of files, which count there as well.
const memoryShare = 90

// LimitMemory gives the runtime the memory limit of this process's control group, less a tenth, so
// that the collector works harder before the kernel ends the process. A limit that was set by
// GOMEMLIMIT stays. The argument is the file system of the
// host. The result is the limit in effect, for the start banner.
func LimitMemory(host fs.FS) string {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return fmt.Sprintf("%d MiB, of GOMEMLIMIT", limit>>20)
	}
	limit := memoryLimit(host)
	if limit == 0 {
		return ""
	}
	debug.SetMemoryLimit(limit / 100 * memoryShare)
	return fmt.Sprintf("%d MiB, %d %% of the limit of the control group", limit/100*memoryShare>>20, memoryShare)
}

// noLimit is what version 1 of control groups reports at most, and more than any host has.
const noLimit = 1 << 60

// memoryLimit returns the lowest limit of this process's control group and of those above it, in
// bytes; 0 means that there is none, or that it cannot be read. A container may see a part of the
// hierarchy only, so that the path of its group does not exist for it: the root counts then.
func memoryLimit(host fs.FS) int64 {
	groups, err := fs.ReadFile(host, "proc/self/cgroup")
	if err != nil {
		return 0 // no Linux, or no /proc
	}
	least := int64(noLimit)
	for line := range strings.Lines(string(groups)) { // ID:controllers:path, as in cgroups(7)
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		root, file := "sys/fs/cgroup", "memory.max" // version 2 has no controllers in the line
		switch {
		case hasController(controllers, "memory"):
			root, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case controllers != "":
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			text, _ := fs.ReadFile(host, path.Join(root, dir, file)) // "max" and what is missing are no limit
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	if least == noLimit {
		return 0
	}
	return least
}

func hasController(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one == name {
			return true
		}
	}
	return false
}
