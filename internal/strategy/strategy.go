package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/selection"
)

// Config describes a Strategy. Only Spec is required.
type Config struct {
	// Spec is the strategy's name with its parameters.
	Spec Spec
	// Service is named in log lines.
	Service string
	// Stale is called for each stale endpoint that slots passes over. It is called
	// within a pick, so it must not block; for example advertise.Catalogue.Observe.
	Stale func(*Endpoint)
	// Dial opens a connection for closest and farthest. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Rand makes picks reproducible in tests. It must be safe for concurrent use if Pick
	// is called concurrently. Default: the runtime's generator; for the strategy random,
	// crypto/rand.
	Rand rand.Source
	// Logger receives warnings. Default: discard.
	Logger *slog.Logger
	// Metrics may be shared by all services. Default: none.
	Metrics *Metrics
}

type picker interface {
	// update publishes a table. The endpoints are checked and sorted by node, and the
	// slice belongs to the picker. Calls do not overlap.
	update(sorted []*Endpoint)
	// pick chooses an endpoint. If d is not nil, it also describes the choice there, and
	// then has no effect on metrics, log or observers.
	pick(r Request, d *Decision) (*Endpoint, error)
	// describe returns Decision.Rule and Decision.Measure.
	describe() (rule, measure string)
}

// Strategy picks endpoints. New makes one; all methods are safe for concurrent
// use.
type Strategy struct {
	spec    Spec
	picker  picker
	results *[resultCount]prometheus.Counter

	mu      sync.Mutex // guards unknown and the order of updates
	unknown []string
}

// New checks the configuration and reports all problems together. It starts no goroutine.
func New(cfg Config) (*Strategy, error) {
	if err := cfg.Spec.Validate(); err != nil {
		return nil, err
	}
	cfg.Spec.Preferred = slices.Clone(cfg.Spec.Preferred)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = newMetrics(nil)
	}
	s := &Strategy{spec: cfg.Spec, results: cfg.Metrics.picks[cfg.Spec.Name], unknown: slices.Clone(cfg.Spec.Preferred)}
	random := rand.New(orRuntime(cfg.Rand))
	switch cfg.Spec.Name {
	case Stable:
		s.picker = &stable{bound: cfg.Spec.Bound, random: random, keyless: cfg.Metrics.keyless[Stable], passedOn: cfg.Metrics.passedOn}
	case StableSHA256:
		s.picker = &stableSHA256{random: random, keyless: cfg.Metrics.keyless[StableSHA256]}
	case Manual:
		s.picker = newManual(cfg.Spec.Preferred)
	case Ordered:
		s.picker = &ordered{preferred: cfg.Spec.Preferred}
	case Random:
		s.picker = newUniform(cfg.Rand)
	case Closest, Farthest:
		s.picker = newByDistance(cfg)
	case Slots:
		s.picker = newSlots(cfg, random)
	default:
		return nil, errors.New("selection: p2c is not a strategy of this package: use a selection.Balancer")
	}
	s.picker.update(nil)
	return s, nil
}

// Update replaces the range; the slice is copied. On an error (an empty or repeated ID or
// Node; a negative, infinite or NaN weight; all reported together) the old range stays.
func (s *Strategy) Update(endpoints []Endpoint) error {
	if err := validate(endpoints); err != nil {
		return err
	}
	sorted := byNode(slices.Clone(endpoints))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = slices.DeleteFunc(slices.Clone(s.spec.Preferred), func(node string) bool {
		return slices.ContainsFunc(sorted, func(e *Endpoint) bool { return e.Node == node })
	})
	s.picker.update(sorted)
	return nil
}

// Pick chooses an endpoint. The error wraps one of those of this package and states why
// there is none.
func (s *Strategy) Pick(r Request) (*Endpoint, error) {
	e, err := s.picker.pick(r, nil)
	s.results[resultOf(err)].Inc()
	return e, err
}

// Explain describes how a pick for the request would be made. Its random draws are
// independent of other picks. Explain has no effects and is not counted.
func (s *Strategy) Explain(r Request) Decision {
	d := Decision{Strategy: s.spec.String(), Key: r.Key}
	d.Rule, d.Measure = s.picker.describe()
	d.Winner, d.Err = s.picker.pick(r, &d)
	return d
}

// UnknownPreferred returns the preferred nodes that are not in the range, in the
// configured order. Log a warning once the range is complete, because a misspelt name
// looks like a node that is down.
func (s *Strategy) UnknownPreferred() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unknown)
}

// Run does the strategy's background work until ctx ends and waits for the goroutines that
// it started: closest and farthest measure connect times. The other strategies have no
// background work, and Run returns immediately. Run returns an error if another Run is
// already running.
func (s *Strategy) Run(ctx context.Context) error {
	if p, ok := s.picker.(*byDistance); ok {
		return p.run(ctx)
	}
	return nil
}

// first returns the first endpoint of the list that the request does not exclude, beginning
// at start and wrapping at the end. If d is not nil, it considers all endpoints, with the
// place as the score.
func first(list []*Endpoint, start int, r *Request, d *Decision) (*Endpoint, error) {
	if len(list) == 0 {
		return nil, errNoEndpoints
	}
	var winner *Endpoint
	for i := range list {
		e := list[(start+i)%len(list)]
		excluded := r.excludes(e)
		d.consider(e, float64(i), noteOf(excluded))
		if !excluded && winner == nil {
			if winner = e; d == nil {
				break
			}
		}
	}
	if winner == nil {
		return nil, errAllExcluded
	}
	return winner, nil
}

// Endpoint is one endpoint that a strategy can choose.
type Endpoint struct {
	// ID is the identity of this instance, unique. Requests exclude endpoints by ID.
	ID string
	// Node is the stable name, unique; it survives a restart. Hashes, orders and the
	// preferred list use Node.
	Node string
	// Address is host:port. closest and farthest measure the time to connect to it; they
	// never pick an endpoint without an address.
	Address string
	// Version distinguishes generations: slots uses only the highest of
	// the endpoints that it is given, which a caller can limit to one version. Versions
	// are compared by their numbers (see CompareVersions): 1.10 is higher than 1.9,
	// 1.0-rc1 is lower than 1.0, and an empty version is the lowest.
	Version string
	// Weight is the share of the keys that stable assigns to the endpoint, relative to
	// the other endpoints: finite and at least 0. With 0 the endpoint gets keys only if
	// all others are excluded. The other strategies do not read it.
	Weight float64
	// Signals give slots and stable the values that change between two updates. If
	// Signals is nil, slots treats the endpoint as stale, and stable assumes that it has
	// no requests in flight.
	Signals Signals
	// Value belongs to the caller.
	Value any
}

// Signals are read during a pick, from any goroutine; they must not block.
type Signals interface {
	// Load returns how many slots are taken; unknown counts as none. For stable it must be
	// the number of requests that this picker has in flight there: stable compares it with
	// the sum over all endpoints.
	Load() (slots int, known bool)
	// Seen returns when the endpoint was last known to be alive, on the clock of
	// Request.Now; unknown counts as never. A time in the future counts as fresh; return
	// one if membership already guarantees that the endpoint is alive.
	Seen() (at selection.Instant, known bool)
}

// load returns the load, 0 if it is unknown.
func (e *Endpoint) load() int {
	if e.Signals == nil {
		return 0
	}
	load, known := e.Signals.Load()
	if !known {
		return 0
	}
	return load
}

// stale reports whether the endpoint was last seen before since, or never.
func (e *Endpoint) stale(since selection.Instant) bool {
	if e.Signals == nil {
		return true
	}
	at, known := e.Signals.Seen()
	return !known || at < since
}

// validate reports all problems of the endpoints together.
func validate(endpoints []Endpoint) error {
	var errs []error
	ids, nodes := make(map[string]bool, len(endpoints)), make(map[string]bool, len(endpoints))
	unique := func(seen map[string]bool, i int, what, name string) {
		if name == "" {
			errs = append(errs, fmt.Errorf("selection: endpoint %d has no %s: give it one", i, what))
		} else if seen[name] {
			errs = append(errs, fmt.Errorf("selection: %s %q is given twice: list each endpoint once", what, name))
		}
		seen[name] = true
	}
	for i, e := range endpoints {
		unique(ids, i, "ID", e.ID)
		unique(nodes, i, "Node", e.Node)
		if !(e.Weight >= 0 && e.Weight <= math.MaxFloat32) { // negated, so that NaN is refused too
			errs = append(errs, fmt.Errorf("selection: endpoint %q has weight %v; allowed is a finite number >= 0", e.ID, e.Weight))
		}
	}
	return errors.Join(errs...)
}

// byNode returns pointers to the endpoints, sorted by node.
func byNode(endpoints []Endpoint) []*Endpoint {
	list := make([]*Endpoint, len(endpoints))
	for i := range endpoints {
		list[i] = &endpoints[i]
	}
	slices.SortFunc(list, func(a, b *Endpoint) int { return strings.Compare(a.Node, b.Node) })
	return list
}

// only returns the endpoints whose node is preferred, in the order of the list.
func only(list []*Endpoint, preferred []string) []*Endpoint {
	return slices.DeleteFunc(slices.Clone(list), func(e *Endpoint) bool { return !slices.Contains(preferred, e.Node) })
}

// Request holds the properties of a request that matter for a pick. The zero value is a
// request without a key and without exclusions.
type Request struct {
	// Key: stable and stable-sha256 send all requests with one key to one endpoint. Use
	// the identity alone, such as a session or a topic without the kind of message;
	// otherwise two kinds of one topic may go to different endpoints. Empty means no key.
	Key string
	// Now is the time on the clock of Signals.Seen. Only slots reads it.
	Now selection.Instant
	// Excluded are sets of endpoint IDs that must not be picked, such as those that this
	// request has tried and those that are draining. The sets are combined.
	Excluded [][]string
	// Balancer excludes endpoints by their ID as well, such as those that are evicted or full: a
	// strategy only orders those that are left. It must not block. Default nil: it excludes none.
	Balancer interface{ Excludes(id string) bool }
}

func (r *Request) excludes(e *Endpoint) bool {
	for _, set := range r.Excluded {
		if slices.Contains(set, e.ID) {
			return true
		}
	}
	return r.Balancer != nil && r.Balancer.Excludes(e.ID)
}

// Decision describes how a pick would be made, for operators.
type Decision struct {
	// Strategy is the strategy's specification.
	Strategy string
	// Key is the request's key.
	Key string
	// Winner is the endpoint picked; if it is nil, Err is the reason.
	Winner *Endpoint
	Err    error
	// Rule states in one sentence how the strategy chooses.
	Rule string
	// Measure is the meaning of Candidate.Score.
	Measure string
	// Candidates are the endpoints considered, in the order of preference if the strategy
	// has one, else in the order in which they were considered.
	Candidates []Candidate
}

// Candidate is one endpoint that was considered.
type Candidate struct {
	ID, Node string
	// Score is the value by which endpoints are compared; see Decision.Measure.
	Score float64
	// Note states whether the candidate was usable, or why not.
	Note string
}

// consider adds a candidate. On nil, which means a pick without explanation, it does
// nothing.
func (d *Decision) consider(e *Endpoint, score float64, note string) {
	if d != nil {
		d.Candidates = append(d.Candidates, Candidate{e.ID, e.Node, score, note})
	}
}

// rank sorts the candidates by falling score.
func (d *Decision) rank() {
	if d != nil {
		slices.SortStableFunc(d.Candidates, func(a, b Candidate) int { return cmp.Compare(b.Score, a.Score) })
	}
}

// Notes of candidates.
const (
	noteUsable     = "usable"
	noteExcluded   = "excluded by the request"
	noteStale      = "stale"
	noteAlready    = "already sampled"
	noteUnmeasured = "not measured yet"
)

func noteOf(excluded bool) string {
	if excluded {
		return noteExcluded
	}
	return noteUsable
}

// PickExplained is Pick with a description: the decision's Winner and Err are the results
// of Pick. Its result is counted like that of a pick, but the scan metrics of slots are
// not updated and Config.Stale is not called. It allocates, so use it for debugging only.
func (s *Strategy) PickExplained(r Request) Decision {
	d := s.Explain(r)
	s.results[resultOf(d.Err)].Inc()
	return d
}

// Errors of a strategy. Every error of Pick wraps exactly one of the first four, which may
// be temporary. ErrNotConfigured is an error of Spec.Validate.
var (
	// ErrNoEndpoints: the range is empty, or contains none of the endpoints that manual
	// may use.
	ErrNoEndpoints = errors.New("no available endpoints")
	// ErrAllExcluded: the request excludes every endpoint that the strategy may use.
	ErrAllExcluded = errors.New("no available endpoints after considering exclusions")
	// ErrNoMeasurement: closest and farthest have not yet connected to any of the
	// remaining endpoints.
	ErrNoMeasurement = errors.New("no available endpoints with latency measurements")
	// ErrAllStale: slots found only endpoints that were not seen recently.
	ErrAllStale = errors.New("no available endpoints that are fresh")
	// ErrNotConfigured: a required setting of the strategy is missing.
	ErrNotConfigured = errors.New("strategy is not configured")
)

// The errors of Pick, allocated once so that a pick that fails does not allocate.
var (
	errNoEndpoints = fmt.Errorf("selection: %w: wait for workers to advertise the service", ErrNoEndpoints)
	errAllExcluded = fmt.Errorf("selection: %w: this request has tried them all; return its last error", ErrAllExcluded)
	errUnmeasured  = fmt.Errorf("selection: %w: no connection to a remaining endpoint has succeeded yet; try again, or check that this relay can reach them", ErrNoMeasurement)
	errAllStale    = fmt.Errorf("selection: %w: no endpoint of the version in use was seen recently; try again later", ErrAllStale)
	errScanBudget  = fmt.Errorf("selection: %w: the scan stopped after maxscan stale endpoints; try again, or raise maxscan", ErrAllStale)
)
