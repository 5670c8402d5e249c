//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// TestAServiceThatFailsItsCheckIsGoneFromEveryRelayInTime runs alone, before the
// tests that run in parallel: it is one with a deadline.
func TestAServiceThatFailsItsCheckIsGoneFromEveryRelayInTime(t *testing.T) {
	const (
		interval   = 500 * time.Millisecond
		rise, fall = 2, 3
		spread     = 2 * time.Second // of the news, to all relays
	)
	f := startFleet(t, fleetConfig{Relays: 3, Plain: true})
	var sick atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if sick.Load() && req.URL.Path == "/healthz" {
			http.Error(w, "the database is gone", http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	w := &worker{backendAddr: service.Listener.Addr().String()}
	f.startAgent(w, "w1", []string{
		fmt.Sprintf("%s;check=http:/healthz;interval=%v;timeout=%v;rise=%d;fall=%d", echo, interval, interval, rise, fall), billing})
	known := func(service string, want int) func() bool {
		return func() bool {
			for _, r := range f.relays {
				var v serviceView
				if f.api(r.Admin, "/api/v1/services/"+service, &v) != 200 || v.Endpoints != want {
					return false
				}
			}
			return true
		}
	}
	procs.Await(t, "every relay knows both services", func() bool { return known(echo, 1)() && known(billing, 1)() })
	var gone, back []time.Duration // of each round; a stall of the machine delays some of them
	for round := range 3 {
		changed := time.Now()
		sick.Store(true)
		procs.Await(t, "every relay has forgotten the service", known(echo, 0))
		gone = append(gone, time.Since(changed).Round(time.Millisecond))
		if a := f.call(f.relays[round], echo); a.failure().Code != "no_endpoint" {
			t.Errorf("%v", a)
		}
		if !known(billing, 1)() {
			t.Error("the other service of the worker went, too")
		}
		var got agentServices
		f.api(w.Admin, "/api/v1/services", &got)
		if s := got.Services[1]; s.Name != echo || s.State != "unhealthy" || !strings.Contains(s.Error, "503") {
			t.Errorf("the worker says %+v", got)
		}

		changed = time.Now()
		sick.Store(false)
		procs.Await(t, "every relay knows the service again", known(echo, 1))
		back = append(back, time.Since(changed).Round(time.Millisecond))
		for _, r := range f.relays {
			procs.Await(t, "it is used through "+r.ID, func() bool { return f.call(r, echo).status == 200 })
		}
	}
	t.Logf("gone everywhere after %v, back everywhere after %v", gone, back)
	if limit := fall*interval + spread; slices.Min(gone) > limit {
		t.Errorf("gone everywhere after %v, want %v at most", gone, limit)
	}
	if limit := rise*interval + spread; slices.Min(back) > limit {
		t.Errorf("back everywhere after %v, want %v at most", back, limit)
	}
}

// agentServices is what a worker's /api/v1/services answers.
type agentServices struct {
	Services []agentService
}

type agentService struct {
	Name, State, Error, Source string
	Since                      time.Time
}

// TestAWorkerIsDrivenByAFileOfServices takes one worker through the life of its
// file.
func TestAWorkerIsDrivenByAFileOfServices(t *testing.T) {
	t.Parallel()
	const services = 200
	many := []string{"--max-services-per-record", "256"}
	f := startFleet(t, fleetConfig{Relays: 3, Plain: true, RelayArgs: slices.Concat(many, patient)})
	w := f.startBackend("w1")
	file := filepath.Join(f.dir, "services.yaml")
	name := func(n int) string { return fmt.Sprintf("s%03d", n) }
	write := func(numbers []int) {
		t.Helper()
		var b strings.Builder
		b.WriteString("services:\n")
		for _, n := range numbers {
			fmt.Fprintf(&b, "  - {name: %s, address: %q, tags: [batch-%d], check: {kind: http, path: /}}\n", name(n), w.backendAddr, n/10)
		}
		if len(numbers) == 0 {
			b.Reset()
			b.WriteString("services: []\n")
		}
		if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	numbers := func(from, to int) (list []int) {
		for n := from; n < to; n++ {
			list = append(list, n)
		}
		return list
	}
	everywhere := func(want []int) {
		t.Helper()
		for _, r := range f.relays {
			procs.Await(t, fmt.Sprintf("%s knows these %d services", r.ID, len(want)), func() bool {
				var got struct {
					Services []struct {
						Service   string
						Endpoints int
					}
				}
				f.api(r.Admin, "/api/v1/services", &got)
				var there []string
				for _, s := range got.Services {
					if s.Endpoints == 1 {
						there = append(there, s.Service)
					}
				}
				slices.Sort(there)
				return slices.EqualFunc(there, want, func(s string, n int) bool { return s == name(n) })
			})
		}
	}

	write(nil)
	f.startAgent(w, "w1", nil, append(many, "--services-file", file)...)
	f.workers = append(f.workers, w)
	procs.Await(t, "the worker says that it has nothing to offer yet", func() bool {
		r, status := f.ready(w.Admin)
		return status == 503 && slices.Equal(r.Reasons, []string{"no service is configured yet"})
	})

	write(numbers(0, services))
	everywhere(numbers(0, services))
	procs.Await(t, "the worker is ready", func() bool { _, status := f.ready(w.Admin); return status == 200 })
	for n := 0; n < services; n += 37 {
		procs.Await(t, name(n)+" answers", func() bool { return f.call(f.relays[n%3], name(n)).status == 200 })
	}

	var before, after agentServices
	f.api(w.Admin, "/api/v1/services", &before)
	load := f.startLoad(t, loadConfig{Name: "reload", Service: name(100), Relay: f.roundRobin})
	held := f.holdOn(t, w, name(0))
	load.more(t, 50)
	write(numbers(50, services+20)) // fifty go, twenty come
	everywhere(numbers(50, services+20))
	load.more(t, 50)
	f.release(t, held.key)
	for _, r := range held.wait() {
		if !r.ok() {
			t.Errorf("in flight when the service was removed: %v", r)
		}
	}

	write([]int{1, 1})
	procs.Await(t, "a file with a mistake is refused", func() bool { return w.Logged("reload refused, nothing has changed", "given twice") })
	everywhere(numbers(50, services+20))

	write(numbers(60, services+20))
	if err := syscall.Kill(w.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	everywhere(numbers(60, services+20))
	load.more(t, 50)
	results := load.stop()
	noneFailed(t, results)
	f.judge(t, results)

	f.api(w.Admin, "/api/v1/services", &after)
	for _, s := range after.Services {
		was := slices.IndexFunc(before.Services, func(b agentService) bool { return b.Name == s.Name })
		if s.State != "offered" || s.Source != "file" || was >= 0 && !s.Since.Equal(before.Services[was].Since) {
			t.Errorf("a reload touched %+v", s)
		}
	}
	if p := runWorker(t, 0, "reload", "--admin-addr", w.Admin); !strings.Contains(p, "no service has changed") {
		t.Errorf("%s", p)
	}
	write([]int{1, 1})
	if p := runWorker(t, 1, "reload", "--admin-addr", w.Admin); !strings.Contains(p, "given twice") {
		t.Errorf("%s", p)
	}
}

// runWorker runs a command of worker to its end and returns its output.
func runWorker(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	p := start(t, processConfig{Name: "worker " + args[0], Binary: "worker", Dir: plain(t), Args: args})
	if code := p.Exit(t); code != wantCode {
		t.Errorf("worker %s: exit code %d, want %d:\n%s", strings.Join(args, " "), code, wantCode, p.Output())
	}
	return p.Output()
}

// TestADrainAndItsEndLoseNoRequest drains a service of one of two workers and
// takes it back, with requests flowing, some of them in flight on that worker.
func TestADrainAndItsEndLoseNoRequest(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 2, RelayArgs: patient, Services: func(int) []string { return []string{echo, billing} }})
	w := f.worker("w1")
	everywhere := func(service, want string) {
		t.Helper()
		for _, r := range f.relays {
			procs.Await(t, fmt.Sprintf("%s sees that %s of %s is %s", r.ID, service, w.ID, want), func() bool {
				var v struct {
					Catalogue []struct {
						NodeID string `json:"node_id"`
						State  string
					}
				}
				f.api(r.Admin, "/api/v1/services/"+service, &v)
				for _, e := range v.Catalogue {
					if e.NodeID == w.ID {
						return e.State == want && len(v.Catalogue) == 2
					}
				}
				return false
			})
		}
	}
	everywhere(echo, "ready")
	for _, r := range f.relays {
		procs.Await(t, r.ID+" is ready", func() bool { _, status := f.ready(r.Admin); return status == 200 })
	}
	load := f.startLoad(t, loadConfig{Name: "drain", Service: echo, Relay: f.roundRobin})
	held := f.holdOn(t, w, echo)
	load.more(t, 200)

	if out := runWorker(t, 2, "drain", echo, "nothing", "--admin-addr", w.Admin); !strings.Contains(out, `no such service: ["nothing"]; this worker has billing, echo`) {
		t.Errorf("%s", out)
	}
	everywhere(echo, "ready") // nothing has changed
	if out := runWorker(t, 1, "drain", "--admin-addr", freeAddr(t)); !strings.Contains(out, "is it running") {
		t.Errorf("%s", out)
	}
	if out := runWorker(t, 0, "drain", echo, "--admin-addr", w.Admin); !strings.Contains(out, "draining") || !strings.Contains(out, "offered") {
		t.Errorf("%s", out)
	}
	everywhere(echo, "draining")
	everywhere(billing, "ready")
	load.turn(t) // what was sent before the relays knew
	drained := len(w.executed(t))
	load.more(t, 300)
	if n := len(w.executed(t)); n != drained {
		t.Errorf("%d requests were sent to a drained service", n-drained)
	}
	f.release(t, held.key)
	for _, r := range held.wait() {
		if !r.ok() {
			t.Errorf("in flight when the service was drained: %v", r)
		}
	}

	runWorker(t, 0, "undrain", "--admin-addr", w.Admin)
	everywhere(echo, "ready")
	procs.Await(t, "the service is used again", func() bool { return len(w.executed(t)) > drained })
	load.more(t, 200)
	results := load.stop()
	noneFailed(t, results)
	f.judge(t, results)
}

// A reference that keeps more than the worker needs, such as a method in a binary with templates,
// shows in the names of functions that each binary has for its stack traces.
func TestTheWorkerHasNoCommandOfARelay(t *testing.T) {
	t.Parallel()
	read := func(binary string) []byte {
		text, err := os.ReadFile(filepath.Join(plain(t), binary))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	worker, relay := read("worker"), read("relay")
	for _, name := range []string{
		"internal/command.RelayTree", "internal/command.PlanCommand", "internal/command.ExplainCommand", "internal/command.RouteCommand",
		"internal/command.CheckCommand", "internal/command.TopCommand", "internal/command.TapCommand", "internal/strategy.New",
	} {
		if !bytes.Contains(relay, []byte(name)) {
			t.Errorf("the relay has no %s: correct this test", name)
		}
		if bytes.Contains(worker, []byte(name)) {
			t.Errorf("the worker has %s", name)
		}
	}
}

// r3 serves nothing, so it never connects to the workers. Once it is gone, they do not wait for it.
func TestAWorkerIsReadyWhenTheRelaysOfThePlanHaveConnected(t *testing.T) {
	t.Parallel()
	for _, attached := range []bool{false, true} {
		t.Run(fmt.Sprintf("attached %v", attached), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 3, Secure: true, Attached: attached, Plain: true, RelayArgs: []string{"--skip-relay", echo + "=r3"}, WorkerArgs: []string{"--ready-relays", "3"}})
			procs.Await(t, "the relays see each other", func() bool { return f.agrees(3) }) // one that knows of no other plans alone, and an attached worker waits for those that relays list
			w := f.startWorker("w1", echo)
			var last readiness
			procs.Await(t, "two of three relays have connected", func() bool {
				last, _ = f.ready(w.Admin)
				return slices.ContainsFunc(last.Reasons, func(r string) bool { return strings.HasPrefix(r, "2 of 3 relays (--ready-relays)") })
			})
			for _, r := range f.relays[:2] {
				procs.Await(t, "requests pass through "+r.ID+" while the worker waits", func() bool { return f.call(r, echo).status == 200 })
			}
			f.relay("r3").Kill()
			procs.Await(t, "the worker is ready without r3", func() bool {
				_, status := f.ready(w.Admin)
				return status == 200
			})
		})
	}
}
