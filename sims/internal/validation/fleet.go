package validation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/procs"
	model "github.com/ringway/ringway/sims/internal/fleet"
)

// patience is the longest wait for a state of the fleet.
const patience = time.Minute

// fleet holds the processes of relays and agents, and the backends, which run in this process.
type fleet struct {
	dir      string
	relays   []relayProcess
	agents   []*procs.Process
	backends []*backend
	admin    *http.Client
}

type relayProcess struct {
	*procs.Process
	gossip, ingress, admin string
}

// startFleet builds and starts the fleet and waits until every relay serves its range. After
// an error no process is running.
func startFleet(ctx context.Context, c Case) (f *fleet, err error) {
	f = &fleet{admin: &http.Client{Timeout: 10 * time.Second}}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.dir, err = os.MkdirTemp("", "ringway-validation-"); err != nil {
		return f, err
	}
	if err = procs.Build(".", f.dir, false, "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker"); err != nil {
		return f, fmt.Errorf("build the binaries (run this inside the repository): %w", err)
	}
	if f.backends, err = startBackends(c.slowFactors()); err != nil {
		return f, err
	}
	address := func() string {
		addr, freeErr := procs.Free("127.0.0.1")
		err = errors.Join(err, freeErr)
		return addr
	}
	for range c.Relays {
		f.relays = append(f.relays, relayProcess{gossip: address(), ingress: address(), admin: address()})
	}
	var seeds []string
	for _, r := range f.relays {
		seeds = append(seeds, r.gossip)
	}
	common := []string{"run", "--cluster", "sims", "--environment", "validation", "--join", strings.Join(seeds, ","), "--log-format", "json", "--log-level", "warn"}
	for i := range f.relays {
		r := &f.relays[i]
		peer := address()
		if err != nil {
			return f, err
		}
		r.Process, err = procs.Launch(procs.Config{Name: model.RelayID(i), Binary: "relay", Dir: f.dir, Args: append(slices.Clone(common), "--id", model.RelayID(i),
			"--gossip-addr", r.gossip, "--ingress-addr", r.ingress, "--peer-addr", peer, "--admin-addr", r.admin,
			"--relays-per-service", strconv.Itoa(c.Relays), "--min-peers-per-worker", strconv.Itoa(perWorker), "--min-peers-per-relay", "1",
			"--peer-slack", strconv.Itoa(slack), "--member-grace", "1s", "--expose-route-headers")})
		if err != nil {
			return f, err
		}
	}
	for i, b := range f.backends {
		gossip, admin := address(), address()
		if err != nil {
			return f, err
		}
		agent, startErr := procs.Launch(procs.Config{Name: model.WorkerID(i), Binary: "worker", Dir: f.dir, Args: append(slices.Clone(common), "--id", model.WorkerID(i),
			"--gossip-addr", gossip, "--admin-addr", admin, "--sidecar-addr", "127.0.0.1:0", "--service", service+"="+b.Addr())})
		if startErr != nil {
			return f, startErr
		}
		f.agents = append(f.agents, agent)
	}
	err = await(ctx, patience, f.processes(), func() error { return f.connected(ctx, c) })
	if err != nil {
		return f, fmt.Errorf("wait until the fleet is connected: %w", err)
	}
	return f, nil
}

func (f *fleet) processes() (all []*procs.Process) {
	for _, r := range f.relays {
		if r.Process != nil {
			all = append(all, r.Process)
		}
	}
	return append(all, f.agents...)
}

// stop ends all processes and backends of the fleet and removes their files.
func (f *fleet) stop() {
	for _, p := range f.processes() {
		p.Kill()
	}
	for _, b := range f.backends {
		b.Die()
	}
	f.admin.CloseIdleConnections()
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}

// ingress returns the ingress addresses of the relays.
func (f *fleet) ingress() (out []string) {
	for _, r := range f.relays {
		out = append(out, r.ingress)
	}
	return out
}

// connected returns an error until every relay serves a range and is connected to all workers
// in the range.
func (f *fleet) connected(ctx context.Context, c Case) error {
	for _, r := range f.relays {
		p, err := f.plan(ctx, r)
		if err != nil {
			return err
		}
		if n := len(p.RelaysPerWorker); n != c.Workers || len(p.Relays) != c.Relays {
			return fmt.Errorf("%s plans with %d relays and %d workers of %d and %d", r.Name(), len(p.Relays), n, c.Relays, c.Workers)
		}
		m, err := f.metrics(ctx, r)
		if err != nil {
			return err
		}
		want := len(p.Relays[slices.IndexFunc(p.Relays, func(o plannedRelay) bool { return o.Relay == r.Name() })].Workers)
		if open := int(m[`ringway_peering_links{state="open"}`]); open < want {
			return fmt.Errorf("%s is connected to %d of %d workers", r.Name(), open, want)
		}
	}
	return nil
}

// plan is the used part of a relay's answer.
type plan struct {
	Relays          []plannedRelay `json:"relays"`
	RelaysPerWorker map[string]int `json:"relays_per_worker"`
}

type plannedRelay struct {
	Relay   string `json:"relay"`
	Workers []struct {
		Worker string  `json:"worker"`
		Weight float64 `json:"weight"`
	} `json:"workers"`
}

func (f *fleet) plan(ctx context.Context, r relayProcess) (p plan, err error) {
	text, err := f.get(ctx, r, "/api/v1/services/"+service+"/plan")
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// metrics returns the metrics of a relay, by name and labels as exposed.
func (f *fleet) metrics(ctx context.Context, r relayProcess) (map[string]float64, error) {
	text, err := f.get(ctx, r, "/metrics")
	if err != nil {
		return nil, err
	}
	return procs.Metrics(string(text)), nil
}

func (f *fleet) get(ctx context.Context, r relayProcess, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+path, nil)
	if err != nil {
		return nil, err
	}
	status, text, err := procs.Ask(f.admin, req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %s answered %d: %.300s", r.Name(), path, status, text)
	}
	return text, err
}

// sum adds up one metric over all relays.
func (f *fleet) sum(ctx context.Context, name string) (total float64, err error) {
	for _, r := range f.relays {
		m, err := f.metrics(ctx, r)
		if err != nil {
			return 0, err
		}
		total += m[name]
	}
	return total, nil
}

// await calls ask until it returns nil, a process has ended, or limit is over.
func await(ctx context.Context, limit time.Duration, all []*procs.Process, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for _, p := range all {
			if ended := p.Ended(); ended != nil {
				return ended
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
