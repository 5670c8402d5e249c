package validation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience bounds each wait for a state of the fleet.
const patience = time.Minute

// fleet is relays and agents as processes, and the backends in this one.
type fleet struct {
	dir      string
	relays   []relayProcess
	agents   []*process
	backends []*backend
	admin    *http.Client
}

type relayProcess struct {
	*process
	gossip, ingress, admin string
}

// startFleet builds and starts everything and waits until every relay serves its range. When
// it fails, nothing is left.
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
	if err = build(ctx, f.dir); err != nil {
		return f, err
	}
	if f.backends, err = startBackends(c.slowFactors()); err != nil {
		return f, err
	}
	var free ports
	address := func() string {
		addr, freeErr := free.free()
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
		r.process, err = start(ctx, f.dir, relayID(i), append(slices.Clone(common), "--id", relayID(i),
			"--gossip-addr", r.gossip, "--ingress-addr", r.ingress, "--peer-addr", peer, "--admin-addr", r.admin,
			"--relays-per-service", strconv.Itoa(c.Relays), "--min-peers-per-worker", strconv.Itoa(perWorker), "--min-peers-per-relay", "1",
			"--peer-slack", strconv.Itoa(slack), "--member-grace", "1s", "--expose-route-headers")...)
		if err != nil {
			return f, err
		}
	}
	for i, b := range f.backends {
		gossip, admin := address(), address()
		if err != nil {
			return f, err
		}
		agent, startErr := start(ctx, f.dir, workerID(i), append(slices.Clone(common), "--id", workerID(i),
			"--gossip-addr", gossip, "--admin-addr", admin, "--sidecar-addr", "127.0.0.1:0", "--service", service+"="+b.addr())...)
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

func (f *fleet) processes() (all []*process) {
	for _, r := range f.relays {
		if r.process != nil {
			all = append(all, r.process)
		}
	}
	return append(all, f.agents...)
}

// stop ends everything that was started and forgets its files.
func (f *fleet) stop() {
	for _, p := range f.processes() {
		p.kill()
	}
	for _, b := range f.backends {
		b.die()
	}
	f.admin.CloseIdleConnections()
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}

// ingress are the addresses for requests.
func (f *fleet) ingress() (out []string) {
	for _, r := range f.relays {
		out = append(out, r.ingress)
	}
	return out
}

// connected is an error until every relay serves a range of its own and is connected to all
// workers in it.
func (f *fleet) connected(ctx context.Context, c Case) error {
	for _, r := range f.relays {
		p, err := f.plan(ctx, r)
		if err != nil {
			return err
		}
		if n := len(p.RelaysPerWorker); n != c.Workers || len(p.Relays) != c.Relays {
			return fmt.Errorf("%s plans with %d relays and %d workers of %d and %d", r.name, len(p.Relays), n, c.Relays, c.Workers)
		}
		m, err := f.metrics(ctx, r)
		if err != nil {
			return err
		}
		want := len(p.Relays[slices.IndexFunc(p.Relays, func(o plannedRelay) bool { return o.Relay == r.name })].Workers)
		if open := int(m[`ringway_peering_links{state="open"}`]); open < want {
			return fmt.Errorf("%s is connected to %d of %d workers", r.name, open, want)
		}
	}
	return nil
}

// plan is the part of a relay's answer that is needed here.
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

// metrics are a relay's, by name and labels as they are written.
func (f *fleet) metrics(ctx context.Context, r relayProcess) (map[string]float64, error) {
	text, err := f.get(ctx, r, "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		name, value, ok := cutLast(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			out[name] = v
		}
	}
	return out, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (f *fleet) get(ctx context.Context, r relayProcess, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read below
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s answered %s: %.300s", r.name, path, resp.Status, text)
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
