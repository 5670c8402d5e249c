package validation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
	model "github.com/ringway/ringway/sims/internal/fleet"
)

// fleet holds the processes of relays and agents, and the backends, which run in this process.
type fleet struct {
	*procs.Fleet
	dir      string
	backends []*backend
}

// startFleet builds and starts the fleet and waits until every relay serves its range. After
// an error no process is running.
func startFleet(ctx context.Context, c Case) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.dir, err = os.MkdirTemp("", "ringway-validation-"); err != nil {
		return f, err
	}
	f.Fleet = procs.NewFleet(procs.FleetConfig{Cluster: "sims", Environment: "validation", Binaries: f.dir})
	if err = procs.Build(".", f.dir, false, "github.com/ringway/ringway/cmd/relay", "github.com/ringway/ringway/cmd/worker"); err != nil {
		return f, fmt.Errorf("build the binaries (run this inside the repository): %w", err)
	}
	if f.backends, err = startBackends(c.slowFactors()); err != nil {
		return f, err
	}
	for i := range c.Relays {
		f.Relay(model.RelayID(i))
	}
	for _, r := range f.Relays {
		err = f.Start(r, procs.Config{Args: []string{"--log-level", "warn",
			"--relays-per-service", strconv.Itoa(c.Relays), "--min-peers-per-worker", strconv.Itoa(perWorker), "--min-peers-per-relay", "1",
			"--peer-slack", strconv.Itoa(slack), "--member-grace", "1s", "--expose-route-headers"}})
	}
	for i, b := range f.backends {
		err = f.Start(f.Worker(model.WorkerID(i)), procs.Config{Args: []string{"--log-level", "warn", "--service", service + "=" + b.Addr()}})
	}
	if err != nil {
		return f, err
	}
	if err = f.Await(ctx, func() error { return f.connected(ctx, c) }); err != nil {
		return f, fmt.Errorf("wait until the fleet is connected: %w", err)
	}
	return f, nil
}

// stop ends all processes and backends of the fleet and removes their files.
func (f *fleet) stop() {
	if f.Fleet != nil {
		f.Stop()
	}
	for _, b := range f.backends {
		b.Die()
	}
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}

// ingress returns the ingress addresses of the relays.
func (f *fleet) ingress() (out []string) {
	for _, r := range f.Relays {
		out = append(out, r.Ingress)
	}
	return out
}

// connected returns an error until every relay is ready, so that its ingress is open, serves a range
// and is connected to all workers in the range.
func (f *fleet) connected(ctx context.Context, c Case) error {
	for _, r := range f.Relays {
		if _, err := f.Ask(ctx, r, "/readyz"); err != nil {
			return err
		}
		p, err := f.plan(ctx, r)
		if err != nil {
			return err
		}
		if n := len(p.RelaysPerWorker); n != c.Workers || len(p.Relays) != c.Relays {
			return fmt.Errorf("%s plans with %d relays and %d workers of %d and %d", r.ID, len(p.Relays), n, c.Relays, c.Workers)
		}
		m, err := f.metrics(ctx, r)
		if err != nil {
			return err
		}
		want := len(p.Relays[slices.IndexFunc(p.Relays, func(o api.PlannedRelay) bool { return o.Relay == r.ID })].Workers)
		if open := int(m[`ringway_peering_links{state="open"}`]); open < want {
			return fmt.Errorf("%s is connected to %d of %d workers", r.ID, open, want)
		}
	}
	return nil
}

func (f *fleet) plan(ctx context.Context, r *procs.Member) (p api.Plan, err error) {
	text, err := f.Ask(ctx, r, "/api/v1/services/"+service+"/plan")
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// metrics returns the metrics of a relay, by name and labels as exposed.
func (f *fleet) metrics(ctx context.Context, r *procs.Member) (map[string]float64, error) {
	text, err := f.Ask(ctx, r, "/metrics")
	return procs.Metrics(string(text)), err
}

// sum adds up one metric over all relays.
func (f *fleet) sum(ctx context.Context, name string) (total float64, err error) {
	for _, r := range f.Relays {
		m, err := f.metrics(ctx, r)
		if err != nil {
			return 0, err
		}
		total += m[name]
	}
	return total, nil
}
