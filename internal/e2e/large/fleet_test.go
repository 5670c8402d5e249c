//go:build unix

package large

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/wire"
)

const (
	// workersPerProcess have a listener, three sessions and three connections of relays each, and a
	// process has 20,000 descriptors at most.
	workersPerProcess = 2000
	// startsPerSecond is how fast the workers start together. Each relay checks the certificate and
	// the record of each, and all processes share two processors.
	startsPerSecond = 40
	// settles is how long a change may take to be known everywhere.
	settles = 5 * time.Second
	// warm bounds the start of the whole fleet.
	warm = 20 * time.Minute
)

// fleet is the relays and the processes of workers.
type fleet struct {
	*procs.Fleet
	t       *testing.T
	workers int
	process []*procs.Process
	control []string
	client  *http.Client
}

func TestAFleetOfAttachedWorkersStaysWholeWhileWorkersAreReplaced(t *testing.T) {
	size := os.Getenv("LARGE_TESTS")
	if size == "" {
		t.Skip("ten minutes: make test-large")
	}
	var relays, workers int
	var text string
	if _, err := fmt.Sscanf(strings.ReplaceAll(size, "x", " "), "%d %d %s", &relays, &workers, &text); err != nil {
		t.Fatalf("LARGE_TESTS=%s: want relays x workers x time, such as 40x20000x15m: %v", size, err)
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, relays, workers)
	began, none := time.Now(), f.used()
	f.await(warm, "every worker has its sessions, and every relay sees all workers", func() bool {
		s := f.state()
		sessions, seen, all := f.seen()
		t.Logf("after %3.0f s: %d workers run, %d have their sessions; relays hold %d, and see %d to %d", time.Since(began).Seconds(), s.Running, s.Whole, sessions, seen, all)
		return s.Whole == workers && sessions == rowSize*workers && seen == workers && all == workers
	})
	t.Logf("%d workers and %d relays are whole after %v", workers, relays, time.Since(began).Round(time.Second))
	f.report("at the start", time.Since(began), none)

	idle := f.used()
	pause := time.Now()
	time.Sleep(time.Minute) // what an idle fleet costs
	f.report("idle", time.Since(pause), idle)

	f.post("/churn")
	before, churned := f.used(), time.Now()
	requests := f.sendRequests()
	f.watch(lasts)
	f.post("/rest")
	sent, failed := requests()
	f.report("while workers are replaced", time.Since(churned), before)
	f.await(2*settles, "the fleet is whole at the end", func() bool {
		s := f.state()
		sessions, seen, all := f.seen()
		return s.Whole == workers && sessions == rowSize*workers && seen == workers && all == workers
	})
	s := f.state()
	t.Logf("from a change until a worker has its sessions again: %d took 1 s at most, %d 2 s, %d 5 s, %d longer; the longest %v", s.Late[0], s.Late[1], s.Late[2], s.Late[3], s.Longest.Round(time.Millisecond))
	t.Logf("%d requests, %d failed", sent, failed)
	if s.Late[3] > 0 || s.Late[0]+s.Late[1]+s.Late[2] == 0 {
		t.Errorf("%v changes, want some, and none of more than %v", s.Late, settles)
	}
	if failed > 0 || sent == 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}

// start starts all processes.
func start(t *testing.T, relays, workers int) *fleet {
	dir := t.TempDir()
	if err := procs.Build(filepath.Join("..", "..", ".."), dir, false, "./cmd/relay"); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, workers: workers, client: &http.Client{Timeout: 30 * time.Second}}
	t.Cleanup(f.client.CloseIdleConnections)
	f.Fleet = procs.NewFleet(procs.FleetConfig{T: t, Cluster: cluster, Environment: environment, Binaries: dir})
	_ = f.Secure(dir)
	var attach []string
	for n := range relays {
		attach = append(attach, f.Relay(fmt.Sprintf("r%d", n+1)).Peer)
	}
	for _, r := range f.Relays {
		_ = f.Start(r, procs.Config{Args: []string{"--endpoint-allowed-cidr", "127.0.0.0/8", "--log-level", "warn"}})
	}
	f.await(procs.Patience, "the relays know each other", func() bool {
		for _, r := range f.Relays {
			if len(f.IDs(r)) != relays {
				return false
			}
		}
		return true
	})
	for first := 1; first <= workers; first += workersPerProcess {
		last := min(first+workersPerProcess-1, workers)
		cfg := processConfig{Control: procs.FreeAddr(t), First: first, Last: last, Attach: attach, Authority: f.Security.Path("ca"),
			PerSecond: startsPerSecond * float64(last-first+1) / float64(workers), PerMinute: float64(last-first+1) / 100}
		text, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f.process = append(f.process, procs.Start(t, procs.Config{Name: "workers", Binary: "exe", Dir: "/proc/self", Env: []string{workersVariable + "=" + string(text)}}))
		f.control = append(f.control, cfg.Control)
	}
	return f
}

// await looks every second, because a look asks all processes.
func (f *fleet) await(bound time.Duration, what string, reached func() bool) {
	f.t.Helper()
	for began := time.Now(); !reached(); time.Sleep(time.Second) {
		if time.Since(began) > bound {
			f.t.Fatalf("not reached in %v: %s", bound, what)
		}
	}
}

// state adds what the processes of workers answer.
func (f *fleet) state() (sum state) {
	for _, addr := range f.control {
		var s state
		resp, err := f.client.Get("http://" + addr + "/state")
		if err != nil {
			continue // it starts
		}
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
			f.t.Error(err)
		}
		_ = resp.Body.Close()
		sum.Running += s.Running
		sum.Whole += s.Whole
		sum.Longest = max(sum.Longest, s.Longest)
		for i, n := range s.Late {
			sum.Late[i] += n
		}
	}
	return sum
}

func (f *fleet) post(path string) {
	for _, addr := range f.control {
		resp, err := f.client.Post("http://"+addr+path, "", nil)
		if err != nil {
			f.t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

// seen asks all relays for their sessions, and how many workers those with the fewest and the most see.
func (f *fleet) seen() (sessions, fewest, most int) {
	fewest = f.workers + 1
	for _, r := range f.Relays {
		text, err := f.Ask(context.Background(), r, "/metrics")
		if err != nil {
			f.t.Error(err)
			return 0, 0, 0
		}
		m := procs.Metrics(string(text))
		sessions += int(m["ringway_session_held"])
		n := int(m["ringway_advertise_endpoints"])
		fewest, most = min(fewest, n), max(most, n)
	}
	return sessions, fewest, most
}

// watch checks that each relay sees as many workers as have run at one moment of the last seconds.
func (f *fleet) watch(lasts time.Duration) {
	type moment struct {
		at      time.Time
		running int
	}
	var recent []moment
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		now := time.Now()
		recent = append(recent, moment{now, f.state().Running})
		for now.Sub(recent[0].at) > settles && len(recent) > 2 {
			recent = recent[1:]
		}
		lowest, highest := recent[0].running, recent[0].running
		for _, m := range recent {
			lowest, highest = min(lowest, m.running), max(highest, m.running)
		}
		_, fewest, most := f.seen()
		highest = max(highest, f.state().Running)
		if now.Sub(recent[0].at) > settles/2 && (fewest < lowest-1 || most > highest+1) { // one may change between two questions
			f.t.Errorf("relays see %d to %d workers, of which %d to %d ran in the last %v", fewest, most, lowest, highest, settles)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// sendRequests sends some requests a second through all relays until the returned function is called.
func (f *fleet) sendRequests() (end func() (sent, failed int64)) {
	var sent, failed atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			req, _ := http.NewRequest(http.MethodGet, "http://"+f.Relays[n%len(f.Relays)].Ingress+"/", nil) // the address is one
			req.Header.Set(wire.ServiceHeader, service)
			sent.Add(1)
			if status, body, err := procs.Ask(f.client, req); status != http.StatusOK {
				failed.Add(1)
				f.t.Errorf("a request: %d %s %v", status, body, err)
			}
		}
	})
	return func() (int64, int64) {
		cancel()
		running.Wait()
		return sent.Load(), failed.Load()
	}
}

// used is what the fleet has cost until now.
type used struct {
	cpu     time.Duration // of all relays
	carried float64       // bytes over loopback
}

func (f *fleet) used() (u used) {
	for _, r := range f.Relays {
		u.cpu += cpu(f.t, r.PID())
	}
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "lo:" {
			u.carried, _ = strconv.ParseFloat(fields[1], 64)
		}
	}
	return u
}

// report prints the cost since before.
func (f *fleet) report(when string, lasted time.Duration, before used) {
	now := f.used()
	var memory, most float64
	for _, r := range f.Relays {
		n := resident(f.t, r.PID())
		memory, most = memory+n, max(most, n)
	}
	var own float64
	for _, p := range f.process {
		own += resident(f.t, p.PID())
	}
	relays, workers := float64(len(f.Relays)), float64(f.workers)
	f.t.Logf("%s: a relay %.0f MB (most %.0f) and %.1f %% of a processor; a worker %.0f kB in a shared process; %.0f bytes/s on the network per worker",
		when, memory/relays/1e6, most/1e6, 100*(now.cpu-before.cpu).Seconds()/lasted.Seconds()/relays, own/workers/1e3, (now.carried-before.carried)/lasted.Seconds()/workers)
}

// cpu returns the time of a processor that a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * (time.Second / 100)
}

// resident returns the resident memory of a process in bytes.
func resident(t *testing.T, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
	return float64(pages * os.Getpagesize())
}
