//go:build !race

package advertise

import (
	"runtime"
	"testing"

	"github.com/ringway/ringway/affinity"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one found to be finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The race detector allocates on its own account.

func TestARecordWithThreeServicesTakesAtMostAKilobyte(t *testing.T) {
	for _, services := range []int{30, 3} {
		f := newCrowd(t, services)
		before := heap()
		v := f.fill()
		perRecord := float64(heap()-before) / crowdSize
		t.Logf("%d services: %.0f bytes per record", services, perRecord)
		if perRecord > 1024 {
			t.Errorf("%.0f bytes per record of three services in the store and the view, want at most 1024", perRecord)
		}
		runtime.KeepAlive(v)
		runtime.KeepAlive(f)
	}
}

// The time is a benchmark's matter; what grows with the cluster shows in bytes.
func TestAChangeCostsTheSameWithManyOtherServices(t *testing.T) {
	perChange := func(others int) float64 {
		f := newCrowd(t, 3)
		f.fill()
		f.offerOthers(others)
		const changes = 200
		raws := make([][]byte, changes)
		for i := range raws {
			raws[i] = f.record(i, 2)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, raw := range raws {
			f.apply(raw)
			f.publish()
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / changes
	}
	few, many := perChange(30), perChange(30_000)
	t.Logf("%.0f bytes next to 30, %.0f next to 30,000", few, many)
	if few > 24<<10 || many > 1.1*few {
		t.Errorf("a change of one worker allocates %.0f bytes next to 30 other services and %.0f next to 30,000", few, many)
	}
}

func TestLookupsAllocateNothing(t *testing.T) {
	const name = "a-service-name-of-sixty-three-bytes-which-is-the-longest-there-is"
	f := newCrowd(t, 3)
	v := f.fill()
	for what, lookup := range map[string]func() bool{
		"a service":   func() bool { return v.Endpoints("service-00002").count > 0 },
		"no service":  func() bool { return v.Endpoints(name[:affinity.MaxServiceName]).count == 0 && !v.known(name) },
		"an endpoint": func() bool { e, ok := v.Endpoint("service-00002", "worker-00017"); return ok && e.Weight > 0 },
		"no endpoint": func() bool { _, ok := v.Endpoint("service-00002", "absent"); return !ok },
		"all endpoints": func() bool {
			n := 0
			for range v.Endpoints("service-00002").All() {
				n++
			}
			return n == crowdSize
		},
		"all services": func() bool {
			n := 0
			for range v.Services() {
				n++
			}
			return n == 3
		},
	} {
		if !lookup() {
			t.Errorf("%s: wrong", what)
		}
		if n := testing.AllocsPerRun(10, func() { lookup() }); n != 0 {
			t.Errorf("looking for %s allocates %v times", what, n)
		}
	}
}
