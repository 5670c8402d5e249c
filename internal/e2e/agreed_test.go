//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/history"
	"github.com/ringway/ringway/internal/procs"
)

// connectedTo returns, for each backend, how many relays have a connection to it, as the kernel
// knows it: a relay counts while it drains a connection, too.
func (f *fleet) connectedTo(t *testing.T) map[string]int {
	t.Helper()
	owner := map[string]string{} // relay by socket
	for _, r := range f.relays {
		dir := fmt.Sprintf("/proc/%d/fd", r.PID())
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it is being restarted
		}
		for _, fd := range fds {
			if socket, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil {
				if inode, ok := strings.CutPrefix(socket, "socket:["); ok {
					owner[strings.TrimSuffix(inode, "]")] = r.ID
				}
			}
		}
	}
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = table.Close() }()
	relays := map[string]map[string]bool{} // by backend
	for _, w := range f.workers {
		relays[hexAddr(t, w.backendAddr)] = map[string]bool{}
	}
	const remote, state, inode, established = 2, 3, 9, "01"
	for lines := bufio.NewScanner(table); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != established || relays[fields[remote]] == nil {
			continue
		}
		if relay := owner[fields[inode]]; relay != "" {
			relays[fields[remote]][relay] = true
		}
	}
	out := map[string]int{}
	for _, w := range f.workers {
		out[w.ID] = len(relays[hexAddr(t, w.backendAddr)])
	}
	return out
}

// hexAddr is an address as /proc/net/tcp has it on a little-endian machine.
func hexAddr(t *testing.T, addr string) string {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	ip := a.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
}

// shares records how many relays each worker has, every 50 ms or as fast as the machine can.
type shares struct {
	history.History
	mu       sync.Mutex
	old, new int // connections of a worker by the plan before and by the next one
	looks    int // since the last call of change
}

// change is called before the plan changes from old to new connections of a worker.
func (w *shares) change(old, new int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.old, w.new, w.looks = old, new, 0
}

func (w *shares) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

func (w *shares) run(t *testing.T, f *fleet) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			w.mu.Lock()
			e := history.Entry{Kind: history.Share, At: time.Now(), Old: w.old, New: w.new}
			w.mu.Unlock()
			for e.Endpoint, e.Count = range f.connectedTo(t) {
				w.Add(e)
			}
			w.mu.Lock()
			w.looks++
			w.mu.Unlock()
		}
	}()
	return func() { close(end); <-ended }
}

// TestOneReloadedRelayChangesThePlanOfAFleetUnderLoad changes strategy, m and k on one of eight
// relays by its file and SIGHUP, and rolls all of it back.
//
// It runs alone, before the tests that run in parallel: it checks eight relays every 50 ms.
func TestOneReloadedRelayChangesThePlanOfAFleetUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r1.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	f := startFleet(t, fleetConfig{Relays: 8, Workers: 6, Plain: true, RelayArgs: []string{"--peer-drain-delay", "2s", "--peer-slack", "0", "--min-peers-per-relay", "1"},
		ArgsOf: func(id string) []string {
			if id == "r1" {
				return []string{"--config", file}
			}
			return nil
		},
		Services: func(int) []string { return []string{echo} }})
	settings := func(r *relay) (api.PlanSettings, *api.Plan) {
		var plan api.Plan
		f.api(r.Admin, "/api/v1/services/"+echo+"/plan", &plan)
		return plan.Settings, &plan
	}
	procs.Await(t, "every relay serves echo with three connections for each worker", func() bool {
		for _, r := range f.relays {
			if _, status := f.ready(r.Admin); status != 200 {
				return false
			}
			if _, plan := settings(r); plan.Coverage.RelaysPerWorker != (api.MinMax{Min: 3, Max: 3}) {
				return false
			}
		}
		for _, n := range f.connectedTo(t) {
			if n < 3 {
				return false
			}
		}
		return true
	})
	watch := &shares{old: 3, new: 3}
	stop := watch.run(t, f)
	load := f.startLoad(t, loadConfig{Name: "agreed", Service: echo, Pause: 10 * time.Millisecond, Relay: func(n int) *relay { return f.relays[n%len(f.relays)] }})
	load.more(t, 100)

	m, author := 3, f.relay("r1")
	var times []time.Duration // of each step, until all relays have it
	for _, step := range []struct {
		text string
		m, k int
		want string
	}{
		{"strategy: rendezvous\n", 3, 8, "rendezvous"},
		{"strategy: rendezvous\nmin-peers-per-worker: 5\n", 5, 8, "rendezvous"},
		{"strategy: rendezvous\nmin-peers-per-worker: 4\nrelays-per-service: 5\n", 4, 5, "rendezvous"},
		{"", 3, 8, "projection"}, // as at the start
	} {
		version := uint64(1)
		if now, _ := settings(author); now.Version > 0 {
			version = now.Version + 1
		}
		watch.change(m, step.m)
		write(fmt.Sprintf("plan-version: %d\n%s", version, step.text))
		author.Signal(t, syscall.SIGHUP)
		began := time.Now()
		for _, r := range f.relays {
			procs.AwaitFor(t, 10*time.Second, fmt.Sprintf("%s plans with version %d", r.ID, version), func() bool {
				now, plan := settings(r)
				return now.Version == version && now.Author == "r1" && string(plan.Strategy) == step.want && len(plan.Relays) == step.k
			})
		}
		times = append(times, time.Since(began))
		load.more(t, 200)
		time.Sleep(3 * time.Second) // the drain delay ends: now what is not planned is closed
		// Many connections of other tests make a look slow.
		procs.AwaitFor(t, time.Minute, "the workers were looked at 20 times", func() bool { return watch.seen() >= 20 })
		// Otherwise the next change would count connections that this step has yet to open.
		procs.Await(t, fmt.Sprintf("every worker has %d connections", step.m), func() bool {
			for _, n := range f.connectedTo(t) {
				if n < step.m {
					return false
				}
			}
			return true
		})
		m = step.m
	}
	// A stall of the machine delays one step, a defect delays all.
	t.Logf("all relays have the versions after %v", times)
	if slices.Sort(times); times[len(times)/2-1] > 3*time.Second {
		t.Errorf("all relays have the versions after %v, want 3 s at most in half of the steps", times)
	}

	// Its author restarts with an old file, and the fleet keeps what it uses.
	write("plan-version: 1\nstrategy: rendezvous\n")
	results := load.stop()
	noneFailed(t, results)
	f.judge(t, results)
	stop()
	watch.Expect(t, history.Limits{})
	author.Process = restart(t, author.Process)
	procs.Await(t, "the author is back with the version of the fleet", func() bool {
		now, plan := settings(author)
		return now.Version == 4 && now.FileVersion == 1 && now.Lags && plan.Strategy == "projection"
	})
	for _, r := range f.relays {
		if now, _ := settings(r); now.Version != 4 {
			t.Errorf("%s plans with version %d after the restart", r.ID, now.Version)
		}
	}
	if got := f.metric(t, f.relay("r2"), "ringway_relay_plan_version"); got != 4 {
		t.Errorf("ringway_relay_plan_version is %v, want 4", got)
	}
	report := ringway(t, "check", "--admin-addr", f.relay("r2").Admin)
	containsAll(t, report.Stdout, []string{"plan-agree", "r1", "does not have version 4"})
	shown := ringway(t, "plan", echo, "--admin-addr", author.Admin)
	containsAll(t, shown.Stdout, []string{"version 4 by r", "the configuration of this relay has version 1"})
	if log := f.relay("r5").Output(); strings.Count(log, "settings of the plan are in use") != 4 || !strings.Contains(log, "author=r1") && !strings.Contains(log, `"author":"r1"`) {
		t.Errorf("r5 does not log each version with its author:\n%s", log)
	}
}
