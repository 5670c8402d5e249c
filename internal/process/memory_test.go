package process

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheMemoryLimitIsTheLowestOfTheControlGroupsThatHoldTheProcess(t *testing.T) {
	for _, c := range []struct {
		name, groups string
		files        map[string]string
		want         int64
	}{
		{"no Linux", "", nil, 0},
		{"version 2, a unit of systemd", "0::/system.slice/ringway-relay.service\n", map[string]string{
			"system.slice/ringway-relay.service/memory.max": "1073741824\n", "system.slice/memory.max": "max\n",
		}, 1 << 30},
		{"version 2, less above it", "0::/a.slice/b.service\n", map[string]string{"a.slice/b.service/memory.max": "max", "a.slice/memory.max": "4096"}, 4096},
		{"version 2, a container", "0::/\n", map[string]string{"memory.max": "67108864"}, 64 << 20},
		{"version 2, a path of the host", "0::/../../kubepods/pod1\n", map[string]string{"memory.max": "67108864"}, 64 << 20},
		{"version 1, a container", "12:cpu,cpuacct:/docker/1\n5:memory:/docker/1\n0::/docker/1\n", map[string]string{"memory/memory.limit_in_bytes": "67108864"}, 64 << 20},
		{"version 1, a unit", "5:hugetlb,memory:/system.slice/x\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712", "memory/system.slice/x/memory.limit_in_bytes": "4096"}, 4096},
		{"version 1 without a limit", "5:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712"}, 0},
		{"version 2 without a limit", "0::/\n", map[string]string{"memory.max": "max\n"}, 0},
		{"nonsense", "memory\n::\n0:\n\x00", map[string]string{"memory.max": "-5"}, 0},
	} {
		host := fstest.MapFS{}
		if c.groups != "" {
			host["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(c.groups)}
		}
		for file, text := range c.files {
			host["sys/fs/cgroup/"+file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memoryLimit(host); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// A process of tests has no other limit that it must keep.
func TestALimitThatTheOperatorSetStays(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	host := fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/\n")}, "sys/fs/cgroup/memory.max": {Data: []byte("4294967296")}}
	debug.SetMemoryLimit(math.MaxInt64)
	if text := LimitMemory(host); debug.SetMemoryLimit(-1) != 4<<30/100*90 || !strings.Contains(text, "3686 MiB") {
		t.Errorf("%d, %q", debug.SetMemoryLimit(-1), text)
	}
	debug.SetMemoryLimit(2 << 30)
	if text := LimitMemory(host); debug.SetMemoryLimit(-1) != 2<<30 || !strings.Contains(text, "GOMEMLIMIT") {
		t.Errorf("%d, %q", debug.SetMemoryLimit(-1), text)
	}
}
