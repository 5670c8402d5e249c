//go:build unix

package e2e

import (
	"strings"
	"testing"
)

// Twenty thousand workers with 450 series each, which they have in all, are nine million.
func TestAWorkerReportsFewerThanEightySeries(t *testing.T) {
	for name, attached := range map[string]bool{"gossiping": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, Secure: true, Attached: attached, Services: func(int) []string { return []string{echo} }})
			f.serves(t, f.relays[0], echo)
			for range 10 {
				if a := f.call(f.relays[0], echo); a.status != 200 {
					t.Fatal(a)
				}
			}
			series := func(path string) map[string]bool {
				names := map[string]bool{}
				a := f.client.get(f.workers[0].Admin, path)
				for line := range strings.Lines(a.body) {
					if at := strings.LastIndex(line, " "); at > 0 && !strings.HasPrefix(line, "#") {
						names[line[:at]] = true
					}
				}
				return names
			}
			usual, all := series("/metrics"), series("/metrics?all")
			t.Logf("%d series, %d with all", len(usual), len(all))
			if len(usual) >= 80 || len(usual) < 20 || len(all) < 2*len(usual) {
				t.Errorf("%d series, %d with all: %v", len(usual), len(all), usual)
			}
			for one := range usual {
				if !all[one] {
					t.Errorf("%s is not among all", one)
				}
			}
			for _, one := range []string{"ringway_ready", "process_resident_memory_bytes", "go_goroutines"} {
				if !usual[one] {
					t.Errorf("%s is missing", one)
				}
			}
		})
	}
}
