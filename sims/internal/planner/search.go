package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenarios/capacity"
)

const (
	mostRelays      = 10_000
	mostDescriptors = capacity.MostDescriptors
	// hop is the CPU time that forwarding adds, as a multiple of that of a request: 160 µs
	// of both relays were measured where a request takes 44 µs.
	hop = 2.6
)

const (
	// all is the k of a fleet in which every relay serves every service.
	all = mostRelays
	// auto is the default k of the relays.
	auto = 0
)

// What is tried: first the automatic k, all relays and every other k, then with the best of
// them every m in place of the default, and every p that makes ranges longer.
var (
	perService = []int{all, 10, 20, 40}
	perWorker  = []int{4, 5, 7, 10, 15}
	perRelay   = []int{5, 10, 20, 30}
)

// settings returns the settings of an option in addition to the number of relays.
type settings struct{ k, m, p int }

// option is one fleet.
type option struct {
	settings
	relays, perService int    // perService is how many relays serve a service
	why                string // the reason for the number of relays
	cost               capacity.Cost
	served             float64  // services that a relay serves, on average
	cores              float64  // of all relays
	cpu                float64  // processors of a relay with one relay lost
	over               []string // the limits that it exceeds
	few                bool     // more relays would keep one of these
	requests           int64    // that were simulated and measured
	p50, p99           float64  // ms; NaN if it was not simulated
	reaches            bool     // the p99 that is asked
}

func (o *option) exceeds() string { return strings.Join(o.over, "; ") }

// cell returns a time as a cell of a table: empty if the queues have no end.
func cell(ms float64) any {
	if math.IsNaN(ms) || math.IsInf(ms, 0) {
		return nil
	}
	return ms
}

// verdict returns why an option is not the recommended one.
func (o *option) verdict(q *question, best *option) string {
	switch {
	case o == best:
		return "recommended"
	case len(o.over) > 0:
		return "no: " + o.exceeds()
	case !(o.p99 <= milliseconds(q.p99)):
		return "no: the p99"
	case best != nil && o.relays > best.relays:
		return "possible, with more relays"
	case best != nil && o.cost.Connections > best.cost.Connections:
		return "possible, with more connections"
	}
	return "possible, at the same cost"
}

// option returns a fleet with its cost, without its p99.
func (q *question) option(relays int, s settings) (*option, error) {
	minimums := affinity.Minimums{PeersPerWorker: s.m, PeersPerRelay: s.p}
	o := &option{settings: s, relays: relays, perService: min(s.k, relays), p50: math.NaN(), p99: math.NaN()}
	planned := s.k
	if s.k == auto {
		o.perService = affinity.PlanConfig{Minimums: minimums, Strategy: q.strategy}.Serving(relays, q.workers/q.services)
		planned = max(o.perService, s.m) // a plan takes no fewer, and uses as many as there are
	}
	o.served = float64(q.services*o.perService) / float64(relays)
	var err error
	o.cost, err = capacity.Fleet{
		Relays: relays, Workers: q.workers, Services: q.services, RelaysPerService: planned,
		Minimums: minimums, Strategy: q.strategy, IndexSource: q.index,
		Requests: q.rate, Latency: q.mean, Clients: q.clients, Changes: q.changes, TLS: q.tls,
	}.Cost()
	if err != nil {
		return nil, err
	}
	forwarded := 1 - float64(o.perService)/float64(relays)
	o.cores = q.rate * q.cpu.Seconds() * (1 + hop*forwarded)
	o.cpu = o.cores * o.cost.Uneven / float64(max(1, relays-1))
	limit := func(what string, value, most float64, unit string, few bool) {
		if value > most {
			o.over = append(o.over, fmt.Sprintf("%s: %s %s, at most %s", what, scenario.Number(value), unit, scenario.Number(most)))
			o.few = o.few || few
		}
	}
	if o.perService <= s.m {
		o.over, o.few = append(o.over, fmt.Sprintf("%d relays for m = %d: each is connected to all workers, and none can be lost", o.perService, s.m)), s.k == auto || s.k > s.m
	}
	limit("CPU of a relay when one is lost", 100*o.cpu/q.cores, 100*q.load, "%", true)
	limit("descriptors of a relay", o.cost.RelayDescriptors, mostDescriptors*q.descriptors, "descriptors", true)
	limit("memory of a relay", o.cost.Memory, q.memory, "MiB", true)
	limit("descriptors of a worker", o.cost.WorkerDescriptors, mostDescriptors*q.descriptors, "descriptors", false)
	limit("gossip of a member", o.cost.Gossip, q.bandwidth, "kB/s", false)
	return o, nil
}

// fewest returns the fleet with the fewest relays that keep every limit that more relays can
// keep; or that of mostRelays, or of the setting.
func (q *question) fewest(s settings) (*option, error) {
	if q.relays > 0 {
		o, err := q.option(q.relays, s)
		if err == nil {
			o.why = "the setting relays"
		}
		return o, err
	}
	low, high := 0, s.m+1 // low relays are too few; high are not known
	var o *option
	for {
		var err error
		if o, err = q.option(high, s); err != nil {
			return nil, err
		}
		if !o.few || high == mostRelays {
			break
		}
		low, high = high, min(2*high, mostRelays)
	}
	if o.few {
		o.why = "the most that are tried"
		return o, nil
	}
	tooFew := "the fewest that can lose one: m + 1"
	for high-low > 1 && low > 0 {
		middle, err := q.option((low+high)/2, s)
		if err != nil {
			return nil, err
		}
		if middle.few {
			low = middle.relays
		} else {
			high, o = middle.relays, middle
		}
	}
	if low > 0 {
		less, err := q.option(low, s)
		if err != nil {
			return nil, err
		}
		tooFew = fmt.Sprintf("with %d: %s", low, less.exceeds())
	}
	o.why = tooFew
	return o, nil
}

// numbered returns k as the setting of a relay.
func (s settings) numbered() string {
	if s.k == auto {
		return "auto"
	}
	return strconv.Itoa(s.k)
}

// options returns the fleets of all numbers of relays per service and of all minimums, with
// their p99.
func (q *question) options(r *scenario.Run) ([]*option, error) {
	defaults := affinity.DefaultMinimums
	first := settings{max(q.perService, auto), cmp.Or(q.m, defaults.PeersPerWorker), cmp.Or(q.p, defaults.PeersPerRelay)}
	try := []settings{first}
	if q.services > 1 && q.perService == 0 {
		for _, k := range perService {
			try = append(try, settings{k, first.m, first.p})
		}
	}
	options, err := q.tryAll(r, try)
	if err != nil {
		return nil, err
	}
	best := cmp.Or(choose(options), nearest(options))
	try = nil
	if q.m == 0 {
		for _, m := range perWorker {
			if best.k == auto || m <= best.k {
				try = append(try, settings{best.k, m, first.p})
			}
		}
	}
	if q.p == 0 {
		for _, p := range perRelay {
			if float64(p) > best.cost.MeanWorkers/best.served && p <= q.workers/q.services {
				try = append(try, settings{best.k, first.m, p})
			}
		}
	}
	more, err := q.tryAll(r, try)
	return distinct(append(options, more...)), err
}

// distinct leaves out repeated fleets: a k beyond the number of relays is no other fleet.
func distinct(options []*option) (out []*option) {
	for _, o := range options {
		if !slices.ContainsFunc(out, func(other *option) bool {
			return o.relays == other.relays && o.perService == other.perService && o.m == other.m && o.p == other.p
		}) {
			out = append(out, o)
		}
	}
	return out
}

func (q *question) tryAll(r *scenario.Run, try []settings) ([]*option, error) {
	options := make([]*option, len(try))
	err := r.Parallel(len(try), func(i int) (err error) {
		if options[i], err = q.fewest(try[i]); err == nil {
			err = q.simulate(options[i])
		}
		return err
	})
	return options, err
}

// choose returns the option with the fewest relays, then the fewest connections, of those
// that reach the p99 and exceed no limit; nil if there is none.
func choose(options []*option) *option {
	possible := slices.DeleteFunc(slices.Clone(options), func(o *option) bool { return !o.reaches || len(o.over) > 0 })
	if len(possible) == 0 {
		return nil
	}
	return slices.MinFunc(possible, func(a, b *option) int {
		return cmp.Or(cmp.Compare(a.relays, b.relays), cmp.Compare(a.cost.Connections, b.cost.Connections), cmp.Compare(b.k, a.k), cmp.Compare(a.m, b.m), cmp.Compare(a.p, b.p))
	})
}

// nearest returns the option with the fewest limits exceeded, then the lowest p99.
func nearest(options []*option) *option {
	return slices.MinFunc(options, func(a, b *option) int {
		return cmp.Or(cmp.Compare(len(a.over), len(b.over)), cmp.Compare(a.p99, b.p99), cmp.Compare(a.relays, b.relays))
	})
}

// neighbours returns the recommended fleet with a relay less and with twice the relays.
func (q *question) neighbours(r *scenario.Run, best *option) ([]*option, error) {
	if q.relays > 0 {
		return nil, nil
	}
	out := make([]*option, 2)
	err := r.Parallel(len(out), func(i int) (err error) {
		if out[i], err = q.option([]int{max(1, best.relays-1), min(2*best.relays, mostRelays)}[i], best.settings); err == nil {
			err = q.simulate(out[i])
		}
		return err
	})
	return out, err
}
