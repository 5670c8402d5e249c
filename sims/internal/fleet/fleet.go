package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// Size is one fleet: relays that serve, workers, relays per worker (m) and workers per
// relay (p).
type Size struct{ Relays, Workers, PerWorker, PerRelay int }

// Sizes are those that documentation compares at.
var Sizes = []string{"10x100x3", "50x1000x3", "50x1009x3", "100x1000x5", "300x10000x3", "1000x100x3", "7x1000x3", "100x10x3"}

// ParseSize reads "50x1000x3": relays, workers and m; p is the default.
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

// ParseSizes reads several.
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

// String returns the size as formulas write it.
func (s Size) String() string {
	return fmt.Sprintf("R = %d, W = %d, m = %d", s.Relays, s.Workers, s.PerWorker)
}

// ByWorkers reports whether the workers' minimum decides: m·W ≥ p·R.
func (s Size) ByWorkers() bool { return s.PerWorker*s.Workers >= s.PerRelay*s.Relays }

// Minimum is the fewest connections that keep both minimums.
func (s Size) Minimum() int {
	return min(s.Relays*s.Workers, max(s.PerWorker*s.Workers, s.PerRelay*s.Relays))
}

// reach is how many workers a relay needs, as a whole number.
func (s Size) reach() int {
	return min(s.Workers, max(s.PerRelay, (s.PerWorker*s.Workers+s.Relays-1)/s.Relays))
}

// WorkerBound and RelayBound are the fewest connections that one worker or relay more or
// less can move: those of the member itself, and on the side whose minimum does not decide,
// as many again to keep the minimum of the other side.
func (s Size) WorkerBound() float64 {
	if s.ByWorkers() {
		return float64(s.PerWorker)
	}
	return 2 * float64(s.PerRelay*s.Relays) / float64(s.Workers)
}

// RelayBound is that of a relay.
func (s Size) RelayBound() float64 {
	if s.ByWorkers() {
		return 2 * float64(s.PerWorker*s.Workers) / float64(s.Relays)
	}
	return float64(s.PerRelay)
}

// Fleet is who is there: numbers of relays and workers, in no particular order.
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

// Without returns members without the one at i, With with one more.
func Without(members []int, i int) []int { return slices.Delete(slices.Clone(members), i, i+1) }

// With returns members with one more.
func With(members []int, id int) []int { return append(slices.Clone(members), id) }

// RelayID and WorkerID are the names that relays and workers go by.
func RelayID(n int) string { return "relay-" + strconv.Itoa(n) }

// WorkerID is the name of a worker.
func WorkerID(n int) string { return "worker-" + strconv.Itoa(n) }

func ids(members []int, name func(int) string) []string {
	out := make([]string, len(members))
	for i, n := range members {
		out[i] = name(n)
	}
	return out
}

// number undoes RelayID and WorkerID.
func number(id string) int {
	n, err := strconv.Atoi(id[strings.IndexByte(id, '-')+1:])
	if err != nil {
		panic(err) // an id that this package did not make
	}
	return n
}

// numbers are those of a list of ids.
func numbers(ids []string) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = number(id)
	}
	return out
}
