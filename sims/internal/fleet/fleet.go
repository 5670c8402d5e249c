package fleet

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// Size is the size of a fleet: relays that serve, workers, relays per worker (m) and workers
// per relay (p).
type Size struct{ Relays, Workers, PerWorker, PerRelay int }

// Sizes lists the sizes of the comparisons in the documentation.
var Sizes = []string{"10x100x3", "50x1000x3", "50x1009x3", "100x1000x5", "300x10000x3", "1000x100x3", "7x1000x3", "100x10x3"}

// ParseSize parses "50x1000x3": relays, workers and m; p is the default.
func ParseSize(text string) (Size, error) {
	s := Size{PerRelay: affinity.DefaultMinimums.PeersPerRelay}
	parts := strings.Split(text, "x")
	if len(parts) != 3 {
		return s, fmt.Errorf("fleet %q: write relays, workers and relays per worker as 50x1000x3", text)
	}
	for i, field := range []*int{&s.Relays, &s.Workers, &s.PerWorker} {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 1 || n > 100_000 {
			return s, fmt.Errorf("fleet %q: %q is not a number from 1 to 100000", text, parts[i])
		}
		*field = n
	}
	if s.PerWorker < affinity.LeastPeersPerWorker || s.PerWorker > s.Relays {
		return s, fmt.Errorf("fleet %q: relays per worker are at least %d, and not more than there are relays", text, affinity.LeastPeersPerWorker)
	}
	return s, nil
}

// ParseSizes parses several sizes.
func ParseSizes(texts []string) ([]Size, error) {
	out := make([]Size, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = ParseSize(text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// String returns the size in the notation of the documentation: R, W and m.
func (s Size) String() string {
	return fmt.Sprintf("R = %d, W = %d, m = %d", s.Relays, s.Workers, s.PerWorker)
}

// ByWorkers reports whether the workers' minimum decides the number of connections:
// m·W ≥ p·R.
func (s Size) ByWorkers() bool { return s.PerWorker*s.Workers >= s.PerRelay*s.Relays }

// Minimum returns the fewest connections that keep both minimums.
func (s Size) Minimum() int {
	return min(s.Relays*s.Workers, max(s.PerWorker*s.Workers, s.PerRelay*s.Relays))
}

// reach returns how many workers a relay needs, rounded up.
func (s Size) reach() int {
	return min(s.Workers, max(s.PerRelay, (s.PerWorker*s.Workers+s.Relays-1)/s.Relays))
}

// WorkerBound returns the fewest connections that one worker more or less can move: the
// connections of the worker, and if the workers' minimum does not decide, as many again to
// keep the relays' minimum.
func (s Size) WorkerBound() float64 {
	if s.ByWorkers() {
		return float64(s.PerWorker)
	}
	return 2 * float64(s.PerRelay*s.Relays) / float64(s.Workers)
}

// RelayBound is the equivalent of WorkerBound for a relay.
func (s Size) RelayBound() float64 {
	if s.ByWorkers() {
		return 2 * float64(s.PerWorker*s.Workers) / float64(s.Relays)
	}
	return float64(s.PerRelay)
}

// Fleet lists the numbers of the relays and workers of a fleet, in no particular order.
type Fleet struct{ Relays, Workers []int }

// New numbers relays and workers from 0.
func New(relays, workers int) Fleet {
	f := Fleet{make([]int, relays), make([]int, workers)}
	for i := range f.Relays {
		f.Relays[i] = i
	}
	for i := range f.Workers {
		f.Workers[i] = i
	}
	return f
}

// Without returns members without the member at index i.
func Without(members []int, i int) []int { return slices.Delete(slices.Clone(members), i, i+1) }

// With returns members with one more.
func With(members []int, id int) []int { return append(slices.Clone(members), id) }

// RelayID returns the id of a relay.
func RelayID(n int) string { return "relay-" + strconv.Itoa(n) }

// WorkerID returns the id of a worker.
func WorkerID(n int) string { return "worker-" + strconv.Itoa(n) }

// RelayIDs returns the ids of the relays, in the order of Relays.
func (f Fleet) RelayIDs() []string { return ids(f.Relays, RelayID) }

// WorkerIDs returns the ids of the workers, in the order of Workers.
func (f Fleet) WorkerIDs() []string { return ids(f.Workers, WorkerID) }

func ids(members []int, name func(int) string) []string {
	out := make([]string, len(members))
	for i, n := range members {
		out[i] = name(n)
	}
	return out
}

// Number is the inverse of RelayID and WorkerID.
func Number(id string) int {
	n, err := strconv.Atoi(id[strings.IndexByte(id, '-')+1:])
	if err != nil {
		panic(err) // the id is not from RelayID or WorkerID
	}
	return n
}

// numbers returns the numbers of ids.
func numbers(ids []string) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = Number(id)
	}
	return out
}

// Event is one change of a fleet: one member joins or leaves.
type Event struct {
	Name   string
	Relays bool // whether the member is a relay
	Joins  bool
	Change func(f Fleet, random *rand.Rand, trial int) Fleet
}

// Events returns all events.
func Events() []Event {
	return []Event{
		{"worker joins", false, true, func(f Fleet, _ *rand.Rand, trial int) Fleet {
			return Fleet{f.Relays, With(f.Workers, joiner(len(f.Workers), trial))}
		}},
		{"worker leaves", false, false, func(f Fleet, random *rand.Rand, _ int) Fleet {
			return Fleet{f.Relays, Without(f.Workers, random.IntN(len(f.Workers)))}
		}},
		{"relay joins", true, true, func(f Fleet, _ *rand.Rand, trial int) Fleet {
			return Fleet{With(f.Relays, joiner(len(f.Relays), trial)), f.Workers}
		}},
		{"relay leaves", true, false, func(f Fleet, random *rand.Rand, _ int) Fleet {
			return Fleet{Without(f.Relays, random.IntN(len(f.Relays))), f.Workers}
		}},
	}
}

// joiner returns the number of the member that joins in a trial, different in each trial.
func joiner(members, trial int) int { return members + trial }

// Bound returns the fewest connections that an event can move.
func (s Size) Bound(e Event) float64 {
	if e.Relays {
		return s.RelayBound()
	}
	return s.WorkerBound()
}

// Graph holds the connections of a fleet, as one bit for each pair, and the load of each
// worker when all relays carry equal traffic. Members join a fleet one at a time and have
// higher numbers, so all joiners use the last row or column.
type Graph struct {
	rows, columns int
	bits          []uint64
	load          []float64
}

// NewGraph returns an empty graph for the members of a fleet and one joiner.
func NewGraph(f Fleet) *Graph {
	rows, columns := len(f.Relays)+1, len(f.Workers)+1
	return &Graph{rows, columns, make([]uint64, rows*columns/64+1), make([]float64, columns)}
}

// Connect adds a connection that carries a share of the relay's traffic.
func (g *Graph) Connect(relay, worker int, share float64) {
	relay, worker = min(relay, g.rows-1), min(worker, g.columns-1)
	at := relay*g.columns + worker
	g.bits[at/64] |= 1 << (at % 64)
	g.load[worker] += share
}

// Connected reports whether a relay and a worker are connected.
func (g *Graph) Connected(relay, worker int) bool {
	at := relay*g.columns + worker
	return g.bits[at/64]>>(at%64)&1 == 1
}

// Moved counts the connections that exist in only one of two graphs.
func Moved(a, b *Graph) int {
	n := 0
	for i := range a.bits {
		n += bits.OnesCount64(a.bits[i] ^ b.bits[i])
	}
	return n
}

// HandedOver returns the traffic that all relays together send to workers, in units of the traffic
// of one relay.
func (g *Graph) HandedOver() (sum float64) {
	for _, load := range g.load {
		sum += load
	}
	return sum
}

// Figures holds the measurements of one graph.
type Figures struct {
	PerWorker, PerRelay Span
	Peak                float64 // load of the busiest worker ÷ mean
	Connections         int
}

// Span is the range of a count.
type Span struct{ Min, Max int }

func (s *Span) add(n int) { s.Min, s.Max = min(s.Min, n), max(s.Max, n) }

// Measure measures the relays that serve and all workers of a fleet. The fleet must have at
// least one of each.
func Measure(g *Graph, f Fleet) Figures {
	out := Figures{PerWorker: Span{Min: math.MaxInt}, PerRelay: Span{Min: math.MaxInt}}
	ofWorker := make(map[int]int, len(f.Workers))
	serving := 0
	for _, relay := range f.Relays {
		n := 0
		for _, worker := range f.Workers {
			if g.Connected(relay, worker) {
				ofWorker[worker]++
				n++
			}
		}
		if n > 0 { // spare relays have no connections
			serving++
			out.PerRelay.add(n)
			out.Connections += n
		}
	}
	for _, worker := range f.Workers {
		out.PerWorker.add(ofWorker[worker])
		out.Peak = max(out.Peak, g.load[worker]*float64(len(f.Workers))/float64(serving))
	}
	return out
}
