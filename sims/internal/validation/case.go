package validation

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// Case is what both sides do.
type Case struct {
	Relays, Workers int
	// Load is the rate of requests as a share of the capacity of all workers.
	Load float64
	// Measured is how long requests are measured, after queueing.Warmup.
	Measured time.Duration
	Seed     uint64
	// selection are the settings of the simulated relays; the real ones have the defaults.
	selection selection.Config
}

// What is wrong with the workers: one in five is three times slower.
const slowShare, slowBy = 0.2, 3

// service is the name under which queueing plans, and ids are its ids: ranges depend on both.
const service = "simulated"

// perWorker is how many relays each worker has.
const perWorker = 3

func (c Case) topology() queueing.Topology {
	return queueing.Topology{Clients: c.Relays, Workers: c.Workers, Range: perWorker * c.Workers / c.Relays}
}

// request is one request of the case.
type request struct {
	due   time.Duration // from the start
	relay int
	work  time.Duration // at a worker that is not slow
}

// measured reports whether a request counts.
func (r request) measured() bool { return r.due >= time.Duration(queueing.Warmup) }

// slowFactors are how many times slower each worker is than normal. The numbers are those that
// package queueing draws; a test compares them.
func (c Case) slowFactors() []float64 {
	factors := make([]float64, c.Workers)
	for i, n := range rand.New(rand.NewPCG(c.Seed, 4)).Perm(c.Workers) {
		factors[n] = 1
		if i < int(math.Round(slowShare*float64(c.Workers))) {
			factors[n] = slowBy
		}
	}
	return factors
}

// work draws the work in n requests as package queueing does; a test compares them, too.
func (c Case) work(n int) []time.Duration {
	random := rand.New(rand.NewPCG(c.Seed, 2))
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = time.Duration(float64(queueing.MeanService) * math.Exp(random.NormFloat64()-0.5))
	}
	return out
}
