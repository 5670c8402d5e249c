//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/history"
	"github.com/ringway/ringway/internal/procs"
)

const (
	cluster     = "e2e"
	environment = "test"
	// domain makes <service>.svc.test the name of a service.
	domain = "svc.test"
)

// fleet is relays and workers of one cluster, each with what it needs, as
// processes. They belong to the test that started the fleet and end with it.
type fleet struct {
	*procs.Fleet
	t       *testing.T
	dir     string
	client  *client
	slots   int
	agent   []string // arguments of all workers
	stdio   *os.File // of all members; nil: their output is kept
	shared  *worker  // whose backend all workers offer; nil: each has its own
	relays  []*relay
	workers []*worker
	outages []history.Entry // of workers that a test restarts, while their backends run on
}

type relay struct {
	*procs.Member
	records string // the file of the request log, if the fleet has one
	tcp     string // empty without fleetConfig.TCP
}

// worker is an agent and the backend that it offers.
type worker struct {
	*procs.Member
	backend     *process
	backendAddr string
	journal     string
}

type fleetConfig struct {
	// Relays and Workers are how many of each there are.
	Relays, Workers int
	// TCP is the service of a TCP ingress of every relay; empty: there is none.
	TCP string
	// RelayArgs are added to those of every relay.
	RelayArgs []string
	// ArgsOf are added to those of one relay. Default: none.
	ArgsOf func(id string) []string
	// WorkerArgs are added to those of every worker.
	WorkerArgs []string
	// RelayFiles is how many descriptors a relay may have; 0: as many as the tests.
	RelayFiles int
	// Seeds is how many of the relays are seeds of all members; 0: all.
	Seeds int
	// Secure gives every process a certificate and a file of gossip keys.
	Secure bool
	// Issued changes what a secure fleet has been issued, before there are members. Default: nothing.
	Issued func(*security)
	// Attached has workers attached instead of gossiping.
	Attached bool
	// Records gives every relay a request log.
	Records bool
	// SharedBackend has all workers offer one backend.
	SharedBackend bool
	// Plain takes binaries without the race detector.
	Plain bool
	// Binaries is where the programs are; empty: those of the tests.
	Binaries string
	// Slots is how many requests of /work a backend serves at a time. Default: 1.
	Slots int
	// Services are what the n-th worker offers, n from 1: the values of
	// --service without the address, such as "echo" or "rpc;protocol=h2c".
	Services func(n int) []string
	// Stdio is the output of every member. Default: it is kept.
	Stdio *os.File
}

// servedBy returns arguments of a number of relays with which only one of them serves the
// services, and the others forward to it.
func servedBy(only string, relays int, services ...string) (args []string) {
	for n := range relays {
		for _, service := range services {
			if id := fmt.Sprintf("r%d", n+1); id != only {
				args = append(args, "--skip-relay", service+"="+id)
			}
		}
	}
	return args
}

// startFleet starts all members together, in no order: that is how fleets start.
func startFleet(t *testing.T, cfg fleetConfig) *fleet {
	t.Helper()
	cfg.Binaries = cmp.Or(cfg.Binaries, binaries)
	if cfg.Plain {
		cfg.Binaries = plain(t)
	}
	f := &fleet{t: t, dir: t.TempDir(), client: newClient(t), slots: max(cfg.Slots, 1), agent: cfg.WorkerArgs, stdio: cfg.Stdio}
	f.Fleet = procs.NewFleet(procs.FleetConfig{T: t, Cluster: cluster, Environment: environment, Binaries: cfg.Binaries})
	if cfg.Secure {
		f.Security = newSecurity(t, f.dir)
		if cfg.Issued != nil {
			cfg.Issued(f.Security)
		}
	}
	f.Attach = cfg.Attached
	for n := range cfg.Relays {
		f.relays = append(f.relays, &relay{Member: f.Relay(fmt.Sprintf("r%d", n+1))})
	}
	if cfg.Seeds > 0 {
		f.Seeds = f.Seeds[:cfg.Seeds]
	}
	for _, r := range f.relays {
		args := append([]string{"--expose-route-headers", "--domain", domain}, cfg.RelayArgs...)
		if cfg.ArgsOf != nil {
			args = append(args, cfg.ArgsOf(r.ID)...)
		}
		if cfg.Records {
			r.records = filepath.Join(f.dir, r.ID+".requests")
			args = append(args, "--request-log", r.records)
		}
		if cfg.TCP != "" {
			r.tcp = freeAddr(t)
			args = append(args, "--tcp-ingress", r.tcp+"="+cfg.TCP)
		}
		f.Start(r.Member, processConfig{OpenFiles: cfg.RelayFiles, Args: args, Stdio: f.stdio})
	}
	if cfg.SharedBackend {
		f.shared = f.startBackend("shared")
	}
	for n := 1; n <= cfg.Workers; n++ {
		f.startWorker(fmt.Sprintf("w%d", n), cfg.Services(n)...)
	}
	return f
}

// startWorker starts a backend, and the agent once the backend answers.
func (f *fleet) startWorker(id string, services ...string) *worker {
	f.t.Helper()
	w := &worker{}
	if f.shared != nil {
		*w = *f.shared
	} else {
		w = f.startBackend(id)
	}
	f.startAgent(w, id, services)
	f.workers = slices.DeleteFunc(f.workers, func(old *worker) bool { return old.ID == id })
	f.workers = append(f.workers, w)
	return w
}

// startBackend returns a worker that has a backend and no agent yet.
func (f *fleet) startBackend(id string) *worker {
	f.t.Helper()
	w := &worker{backendAddr: freeAddr(f.t), journal: filepath.Join(f.dir, id+".journal")}
	w.backend = start(f.t, processConfig{Name: id + "-backend", Binary: "backend",
		Args: []string{"-addr", w.backendAddr, "-name", id, "-journal", w.journal, "-slots", strconv.Itoa(f.slots)}})
	procs.Await(f.t, w.backend.Name()+" answers", func() bool { return f.client.get(w.backendAddr, "/").status == 200 })
	return w
}

// startAgent starts the agent of a worker, with further arguments.
func (f *fleet) startAgent(w *worker, id string, services []string, more ...string) {
	w.Member = f.Worker(id)
	args := slices.Concat([]string{"--drain-delay", "2s"}, f.agent, more)
	for _, s := range services {
		name, options, _ := strings.Cut(s, ";")
		args = append(args, "--service", strings.TrimSuffix(name+"="+w.backendAddr+";"+options, ";"))
	}
	f.Start(w.Member, processConfig{Args: args, Stdio: f.stdio})
}

// awaitRange waits until every relay is ready, and sends to that number of workers of echo.
func (f *fleet) awaitRange(t *testing.T, workers int) {
	t.Helper()
	for _, r := range f.relays {
		procs.Await(t, fmt.Sprintf("%s is ready and sends to %d workers", r.ID, workers), func() bool {
			var v serviceView
			_, status := f.ready(r.Admin)
			return status == 200 && f.api(r.Admin, "/api/v1/services/"+echo, &v) == 200 && v.Range == workers
		})
	}
}

func (f *fleet) worker(id string) *worker {
	i := slices.IndexFunc(f.workers, func(w *worker) bool { return w.ID == id })
	if i < 0 {
		f.t.Fatalf("there is no worker %q", id)
	}
	return f.workers[i]
}

func (f *fleet) relay(id string) *relay {
	i := slices.IndexFunc(f.relays, func(r *relay) bool { return r.ID == id })
	if i < 0 {
		f.t.Fatalf("there is no relay %q", id)
	}
	return f.relays[i]
}

// release opens a gate on every backend: which of them holds a request is the
// relays' choice.
func (f *fleet) release(t *testing.T, key string) {
	t.Helper()
	for _, w := range f.workers {
		select {
		case <-w.backend.Done:
			continue
		default:
		}
		if a := f.client.get(w.backendAddr, "/release?key="+key); a.status != 200 {
			t.Errorf("release %s on %s: %v", key, w.ID, a)
		}
	}
}

// executed counts, over all backends, how often each request was executed. Its
// keys are "METHOD id".
func (f *fleet) executed(t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, w := range f.workers {
		for id, n := range w.executed(t) {
			counts[id] += n
		}
	}
	return counts
}

// executed counts for one worker, all that ever had its id.
func (w *worker) executed(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(w.journal)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		counts[strings.TrimSuffix(line, "\n")]++
	}
	return counts
}

// stopBackend ends a backend in order.
func (w *worker) stopBackend(t *testing.T) {
	t.Helper()
	w.backend.Signal(t, syscall.SIGTERM)
	if code := w.backend.Exit(t); code != 0 {
		t.Errorf("the backend of %s exited with %d", w.ID, code)
	}
}
