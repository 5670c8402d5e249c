package demo

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/relay"
)

const (
	// service is the service that all workers offer.
	service = "demo"
	// medianServiceTime of most workers. slowFactor multiplies the medians of a few,
	// so that the load balancing has an effect.
	medianServiceTime = 5 * time.Millisecond
	slowFactor        = 3
)

// The streams of the seed, so that no two parts draw the same random numbers.
const (
	streamSlow = iota + 1
	streamArrivals
	streamVictims
	streamService // plus the index of the worker
)

// demoFleet has all relays and workers.
type demoFleet struct {
	*fleet.Fleet
	seed    uint64
	medians []time.Duration // of the service times, by index of the worker
}

type fleetConfig struct {
	// Relays and Workers are their numbers.
	Relays, Workers int
	// Seed determines the slow workers and the service times.
	Seed uint64
	// Logger gets the log of the members.
	Logger *slog.Logger
}

// startFleet starts all members, the workers concurrently. It does not wait until they have
// found each other. After an error nothing is left running.
func startFleet(cfg fleetConfig) (*demoFleet, error) {
	members := fleet.New(fleet.Config{Cluster: "demo", Environment: "loopback", Logger: cfg.Logger})
	f := &demoFleet{members, cfg.Seed, serviceTimes(cfg.Workers, rand.New(rand.NewPCG(cfg.Seed, streamSlow)))}
	for i := range cfg.Relays {
		// The clients count the answers of each worker by a route header.
		if err := f.StartRelay(fmt.Sprintf("relay-%d", i+1), func(s *relay.Settings) { s.Requests.ExposeRouteHeaders = true }); err != nil {
			return nil, errors.Join(err, f.Stop())
		}
	}
	var group errgroup.Group
	for place := range cfg.Workers {
		group.Go(func() error { return f.start(place) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// serviceTimes makes one worker in six slow.
func serviceTimes(workers int, rng *rand.Rand) []time.Duration {
	medians := slices.Repeat([]time.Duration{medianServiceTime}, workers)
	for _, place := range rng.Perm(workers)[:workers/6] {
		medians[place] *= slowFactor
	}
	return medians
}

// workerID is the id of the worker at an index. Its replacements have the same id.
func workerID(place int) string { return fmt.Sprintf("worker-%02d", place+1) }

// start starts the worker at an index, with a new service.
func (f *demoFleet) start(place int) error {
	id := workerID(place)
	return f.StartWorker(fleet.WorkerConfig{ID: id, Services: []string{service}, Handler: loadgen.NewStub(loadgen.StubConfig{
		Name: id, Median: f.medians[place], Seed: f.seed, Stream: streamService + uint64(place),
	})})
}

// addresses returns the addresses of the relays.
func (f *demoFleet) addresses() (out []relayAddress) {
	for _, r := range f.Relays() {
		out = append(out, relayAddress{ID: r.ID(), Ingress: "http://" + r.IngressAddr(), Admin: "http://" + r.AdminAddr()})
	}
	return out
}
