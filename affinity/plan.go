package affinity

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/ringway/ringway/ring"
)

// Plan is the connection plan of one service: the relays that serve it and the workers to
// which each of them connects. It is immutable and safe for concurrent use.
type Plan struct {
	service  string
	skip     []string
	choice   *choice // nil if it is not kept
	affine   []string
	workers  []string
	minimums Minimums
	strategy Strategy
	fallback string

	relayPlaces  places
	workerPlaces places
	groups       []group        // by place of workers
	shares       [][]relayShare // by relay

	// In a scaled group a relay splits its traffic over its workers in proportion to the target of
	// each, times the factor of its cell, which is a run of workers that have the same relays.
	// cellOf and factors are nil if no group is scaled, targets if all are equal.
	targets []float64
	cellOf  []int32
	factors []float64 // of each cell

	weights []float64 // of each worker; nil if all are equal
	supply  []float64 // of each relay: its traffic as a multiple of the mean; nil if all carry the same

	// flows are the parts of a relay's traffic that go to each of its cells, in order, where no
	// factors give every worker its share; nil for other relays. The factor of a cell then makes
	// the targets of its workers parts of the cell.
	flows [][]float64
}

// relayShare is one relay's part in one group.
type relayShare struct {
	group *group
	set   *relaySet
	local int // index in set.relays
}

// Assignment is one connection that a relay should hold.
type Assignment struct {
	Worker string
	Weight float64 // share of the relay's traffic, 0 to 1; 0 is a warm standby
}

// NewPlan picks the affine relays, puts relays and workers in ring order and in groups by
// datacenter, and determines all connections. It returns [ErrNoRelays] or [ErrNoWorkers]
// for an empty side, and an error for ids that are empty or repeated, for an invalid
// service name, and for settings out of bounds.
//
// With projection the cost is a sort of the workers, unless WorkersOrdered is set, and a
// few nanoseconds per slot and relay where slots are needed; Previous saves both while neither side
// changes, and nearly all of the sort's check if few workers do. Weights are then computed
// relay by relay, on demand, except where workers have unequal weights, relays carry unequal
// traffic, or several groups share relays. With rendezvous the cost is a few nanoseconds per relay and worker, and
// NewPlan always computes the weights.
func NewPlan(cfg PlanConfig) (*Plan, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	workers, ids, err := cfg.orderedWorkers()
	if err != nil {
		return nil, err
	}
	loads, err := loadsOf(workers)
	if err != nil {
		return nil, cfg.named(err)
	}
	workerPlaces := placesOf(len(workers), func(i int) *Place { return &workers[i].Place })
	relays, choice, err := cfg.affine(cfg.homes(workerPlaces.distinct))
	if err != nil {
		return nil, err
	}
	if cfg.WholeRange {
		cfg.Minimums.PeersPerWorker = max(cfg.Minimums.PeersPerWorker, len(relays))
	}
	p := &Plan{
		service: cfg.Service, skip: slices.Clone(cfg.Skip), choice: choice, workers: ids, weights: loads, minimums: cfg.Minimums, strategy: cfg.Strategy,
		relayPlaces:  placesOf(len(relays), func(i int) *Place { return &relays[i].Place }),
		workerPlaces: workerPlaces,
	}
	for _, relay := range relays {
		p.affine = append(p.affine, relay.ID)
	}
	p.supply = supplyOf(relays, cfg.Relays)
	z := newZones(zoneConfig{
		relays: p.relayPlaces, workers: p.workerPlaces, minimums: cfg.Minimums, perTier: cfg.PeersPerTier,
		slack: cfg.ZoneSlack, supply: p.supply, weights: p.weights,
	})
	p.groups = z.groups()
	p.collectShares()
	if p.strategy == Rendezvous {
		p.link()
	}
	p.balance(z.targets(loads))
	return p, nil
}

// collectShares collects the shares of every relay.
func (p *Plan) collectShares() {
	p.shares = make([][]relayShare, len(p.affine))
	first := make([]relayShare, len(p.affine)) // most relays have one
	for i := range p.groups {
		g := &p.groups[i]
		for b := range g.sets {
			for local, relay := range g.sets[b].relays {
				if p.shares[relay] == nil {
					p.shares[relay] = first[relay : relay : relay+1]
				}
				p.shares[relay] = append(p.shares[relay], relayShare{g, &g.sets[b], local})
			}
		}
	}
	// Nearest first, because a relay with little traffic uses the first part of its workers.
	for relay, shares := range p.shares {
		if len(shares) > 1 {
			here := p.relayPlaces.distinct[p.relayPlaces.of[relay]]
			away := func(s relayShare) int {
				there := p.workerPlaces.distinct[p.workerPlaces.of[s.group.workers[0]]]
				return 2*int(here.Tier(there)) + int(min(s.set.part, guestSet))
			}
			slices.SortStableFunc(shares, func(a, b relayShare) int { return cmp.Compare(away(a), away(b)) })
		}
	}
}

// link determines all connections by rendezvous. Relays and workers are hashed under
// different keys, so that the score of a relay and a worker with the same id is as random
// as any other.
func (p *Plan) link() {
	relays, workers := ring.Hash(p.service, 0), ring.Hash(p.service+"~", 0)
	for i := range p.groups {
		g := &p.groups[i]
		workerHashes := make([]uint64, len(g.workers))
		for w, pos := range g.workers {
			workerHashes[w] = ring.Hash(p.workers[pos], workers)
		}
		for b := range g.sets {
			relayHashes := make([]uint64, len(g.sets[b].relays))
			for r, index := range g.sets[b].relays {
				relayHashes[r] = ring.Hash(p.affine[index], relays)
			}
			g.sets[b].rendezvous(relayHashes, workerHashes)
		}
	}
}

// Service returns the name of the service.
func (p *Plan) Service() string { return p.service }

// Strategy returns the strategy of the plan: the configured one, unless [Plan.Fallback] is
// not empty.
func (p *Plan) Strategy() Strategy { return p.strategy }

// Fallback returns why the plan does not use the configured strategy, or an empty string if
// the plan uses it.
func (p *Plan) Fallback() string { return p.fallback }

// Minimums returns the minimums that the plan keeps.
func (p *Plan) Minimums() Minimums { return p.minimums }

// Affine returns the relays that serve the service, by index. The slice is the plan's and
// must not be changed.
func (p *Plan) Affine() []string { return p.affine }

// Workers returns the workers in ring order. The slice is the plan's and must not be
// changed.
func (p *Plan) Workers() []string { return p.workers }

// Index returns the index of a relay, and false if it does not serve the service.
func (p *Plan) Index(relay string) (int, bool) {
	i := slices.Index(p.affine, relay)
	return i, i >= 0
}

// Ranges returns the ranges of workers that the relay at index connects to, one for each
// ring in which the relay takes part. In a fleet without places there is one ring, that of
// [Plan.Workers]; otherwise each ring holds the workers of one group, in the same order.
// With rendezvous a relay's workers are not contiguous and there are no ranges.
func (p *Plan) Ranges(index int) ([]Range, error) {
	if err := p.check(index); err != nil || p.strategy == Rendezvous {
		return nil, err
	}
	var out []Range
	for _, s := range p.shares[index] {
		out = append(out, s.set.shape.project(s.local))
	}
	return out, nil
}

// Spacing returns how many workers, rounded up, lie between the starts of neighbouring ranges on
// the ring of the relay at index. If every relay sends requests to this many of its first workers,
// every worker gets some. Spacing is 0 if the relay has a part in several rings, where all its
// workers are needed, with rendezvous, and if there is no relay at index.
func (p *Plan) Spacing(index int) int {
	if p.check(index) != nil || p.strategy == Rendezvous || len(p.shares[index]) > 1 {
		return 0
	}
	s := p.shares[index][0]
	return (len(s.group.workers) + len(s.set.relays) - 1) / len(s.set.relays)
}

// Assignments returns the connections of the relay at index with their weights, zone by zone,
// the nearest first, in ring order from the start of each range. The slice is the caller's.
func (p *Plan) Assignments(index int) ([]Assignment, error) {
	return p.AppendAssignments(nil, index)
}

// AppendAssignments appends what [Plan.Assignments] returns to dst.
func (p *Plan) AppendAssignments(dst []Assignment, index int) ([]Assignment, error) {
	if err := p.check(index); err != nil {
		return dst, err
	}
	if share := p.shares[index][0]; !share.group.scaled {
		return p.appendRange(dst, share), nil
	}
	first, sum := len(dst), 0.0
	at, cell := -1, int32(-1) // in flows
	for _, s := range p.shares[index] {
		for local := range s.positions() {
			pos, weight := s.group.workers[local], 0.0
			own := p.cellOf[pos]
			switch {
			case s.set.part.standby():
			case p.flows != nil && p.flows[index] != nil:
				if own != cell {
					at, cell = at+1, own
				}
				weight = p.flows[index][at] * loadOf(p.targets, pos) * p.factors[own]
			default:
				weight = loadOf(p.targets, pos) * p.factors[own]
			}
			dst = append(dst, Assignment{Worker: p.workers[pos], Weight: weight})
			sum += weight
		}
	}
	for i := range dst[first:] {
		dst[first+i].Weight /= sum
	}
	return dst, nil
}

// appendRange is AppendAssignments for weights that have a closed form.
func (p *Plan) appendRange(dst []Assignment, s relayShare) []Assignment {
	r := s.set.shape.project(s.local)
	dst = slices.Grow(dst, r.len)
	pos := r.start
	s.set.shape.eachWeight(s.local, func(workers int, weight float64) {
		for range workers {
			dst = append(dst, Assignment{Worker: p.workers[s.group.workers[pos]], Weight: weight})
			if pos++; pos == r.size {
				pos = 0
			}
		}
	})
	return dst
}

// connections yields the positions of the workers that the relay at index connects to.
func (p *Plan) connections(index int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, s := range p.shares[index] {
			for pos := range s.positions() {
				if !yield(int(s.group.workers[pos])) {
					return
				}
			}
		}
	}
}

// positions yields the positions, in the group, of the workers of the share.
func (s relayShare) positions() iter.Seq[int] {
	if s.set.links == nil {
		return s.set.shape.project(s.local).All()
	}
	return func(yield func(int) bool) {
		for _, pos := range s.set.links[s.local] {
			if !yield(int(pos)) {
				return
			}
		}
	}
}

// Loads returns the expected load of every worker, in ring order, as a multiple of its share by
// weight: 1 everywhere if the connections allow it. It costs O(connections). The slice is the
// caller's.
func (p *Plan) Loads() []float64 {
	out := make([]float64, len(p.workers))
	var row []Assignment
	weights := 0.0
	for i := range p.affine {
		row, _ = p.AppendAssignments(row[:0], i) // i is an index of the plan
		at := 0
		for pos := range p.connections(i) {
			out[pos] += row[at].Weight * p.trafficOf(i)
			at++
		}
	}
	for w := range out {
		weights += loadOf(p.weights, int32(w))
	}
	for w := range out {
		out[w] *= weights / (loadOf(p.weights, int32(w)) * float64(len(p.affine)))
	}
	return out
}

// ZoneFlow is the traffic that the relays of one zone send to the workers of one.
type ZoneFlow struct {
	From, To Place
	Share    float64 // of all traffic of the service, 0 to 1
}

// Zones returns the expected traffic between all pairs of zones that exchange any, by the names of
// From and To. It costs O(connections). The slice is the caller's.
func (p *Plan) Zones() []ZoneFlow {
	flow := make([][]float64, len(p.relayPlaces.distinct))
	for from := range flow {
		flow[from] = make([]float64, len(p.workerPlaces.distinct))
	}
	var row []Assignment
	for i := range p.affine {
		row, _ = p.AppendAssignments(row[:0], i) // i is an index of the plan
		at := 0
		for pos := range p.connections(i) {
			flow[p.relayPlaces.of[i]][p.workerPlaces.of[pos]] += row[at].Weight * p.trafficOf(i) / float64(len(p.affine))
			at++
		}
	}
	var out []ZoneFlow
	for _, from := range namesInOrder(p.relayPlaces.distinct) {
		for _, to := range namesInOrder(p.workerPlaces.distinct) {
			if flow[from][to] > 0 {
				out = append(out, ZoneFlow{p.relayPlaces.distinct[from], p.workerPlaces.distinct[to], flow[from][to]})
			}
		}
	}
	return out
}

// trafficOf returns the traffic of a relay as a multiple of the mean.
func (p *Plan) trafficOf(index int) float64 {
	if p.supply == nil {
		return 1
	}
	return p.supply[index]
}

// Coverage counts the connections of all affine relays, in O(connections). The result is
// the caller's.
func (p *Plan) Coverage() Coverage {
	perWorker := make([]int, len(p.workers))
	c := Coverage{PerWorker: perWorker, MinPerRelay: len(p.workers)}
	for i := range p.affine {
		n := 0
		for pos := range p.connections(i) {
			perWorker[pos]++
			n++
		}
		c.Connections += n
		c.MinPerRelay, c.MaxPerRelay = min(c.MinPerRelay, n), max(c.MaxPerRelay, n)
	}
	c.Min, c.Max = slices.Min(perWorker), slices.Max(perWorker)
	return c
}

// Distance returns how many places a worker lies outside the range of the relay at index: 0
// inside the range, 1 next to it. Callers use the distance to keep a connection that has
// just dropped out of the range. With rendezvous the distance is how many other relays
// would have to leave before this relay is chosen. It is -1 if the worker does not offer
// the service, if the relay has no part in the worker's group, or if there is no relay at
// index.
func (p *Plan) Distance(index int, worker string) int {
	w, ok := p.position(worker)
	if !ok || p.check(index) != nil {
		return -1
	}
	s, pos := p.shareAt(index, w)
	if s == nil {
		return -1
	}
	return p.distance(*s, pos)
}

func (p *Plan) distance(s relayShare, pos int) int {
	if s.set.links == nil {
		return s.set.shape.project(s.local).distance(pos)
	}
	if _, linked := slices.BinarySearch(s.set.links[s.local], int32(pos)); linked {
		return 0
	}
	return p.rank(s, pos) - s.set.shape.PeersPerWorker + 1
}

// longRange is how many workers of a range of projection allow as many places as the slack has.
// What a place costs is one connection of the range: relays with long ranges can keep more places,
// and need them, because the ends of their ranges pass more workers at each change of the ring.
const longRange = 50

// Keeps reports whether the relay at index keeps an open connection to a worker that its range no
// longer has: one that is at most slack places outside, and, where a range of projection has more
// than 50 workers, at most slack places for each 50 of them. Inside the range and for pairs without
// a [Plan.Distance] the result is false.
func (p *Plan) Keeps(index int, worker string, slack int) bool {
	w, ok := p.position(worker)
	if !ok || p.check(index) != nil {
		return false
	}
	s, pos := p.shareAt(index, w)
	if s == nil {
		return false
	}
	if s.set.links == nil {
		slack = max(slack, slack*s.set.shape.project(s.local).Len()/longRange)
	}
	d := p.distance(*s, pos)
	return d > 0 && d <= slack
}

// rank returns how many relays of the set have a higher score with the worker at pos of
// the group.
func (p *Plan) rank(s relayShare, pos int) int {
	worker := ring.Hash(p.workers[s.group.workers[pos]], ring.Hash(p.service+"~", 0))
	seed := ring.Hash(p.service, 0)
	at := func(local int) scored {
		return scored{pairHash(ring.Hash(p.affine[s.set.relays[local]], seed), worker), local}
	}
	own, ahead := at(s.local), 0
	for local := range s.set.relays {
		if at(local).ahead(own) {
			ahead++
		}
	}
	return ahead
}

// position returns the index of a worker in ring order, by binary search.
func (p *Plan) position(worker string) (int, bool) {
	seed := ring.Hash(p.service, 0)
	hash := ring.Hash(worker, seed)
	return sort.Find(len(p.workers), func(i int) int {
		return cmp.Or(cmp.Compare(hash, ring.Hash(p.workers[i], seed)), strings.Compare(worker, p.workers[i]))
	})
}

// shareAt returns the relay's share in the group of the worker at a position, nil if it has
// none, and the worker's position in the group.
func (p *Plan) shareAt(index, worker int) (*relayShare, int) {
	g := &p.groups[p.workerPlaces.of[worker]]
	for i := range p.shares[index] {
		if s := &p.shares[index][i]; s.group == g {
			pos, _ := slices.BinarySearch(g.workers, int32(worker))
			return s, pos
		}
	}
	return nil, 0
}

func (p *Plan) check(index int) error {
	if index < 0 || index >= len(p.affine) {
		return fmt.Errorf("affinity: service %q: relay index %d: allowed are 0 to %d for %d relays",
			p.service, index, len(p.affine)-1, len(p.affine))
	}
	return nil
}

// Coverage counts the connections of a plan from both sides.
type Coverage struct {
	PerWorker []int // relays per worker, in ring order
	Min, Max  int   // of PerWorker

	MinPerRelay, MaxPerRelay int // workers per relay
	Connections              int // total
}
