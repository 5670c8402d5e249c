package selection

import "time"

// Balancer picks endpoints of one range. V is what the caller stores with each endpoint, such as
// a pool of connections. All methods are safe for concurrent use.
type Balancer[V any] struct{ core }

// NewBalancer returns a balancer with an empty range.
func NewBalancer[V any](cfg Config) (*Balancer[V], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := new(Balancer[V])
	b.init(cfg)
	return b, nil
}

// Endpoint is one member of a relay's range, as the caller describes it.
type Endpoint[V any] struct {
	// ID is the identity: an endpoint keeps its statistics over updates with the same ID.
	ID string
	// Weight is the share of this relay's traffic, relative to the other
	// endpoints; finite and >= 0. An endpoint of weight 0 is connected but
	// drawn only when nothing else is left.
	Weight float64
	// Tier is how far away the endpoint is, 0 nearest. A farther tier gets the traffic
	// that the healthy endpoints of the nearer tiers cannot take; see
	// [Config.Overprovisioning].
	Tier uint8
	// Limit is the most requests that this balancer may have in flight there, 0 for any
	// number. An endpoint without room is passed over while another has room.
	Limit int
	// Refuses is true if the endpoint refuses requests itself when it is full, with the
	// outcome [Full]. Limit is then only this balancer's share of the endpoint's places,
	// and other balancers may have left some free: if no endpoint has room, the least full
	// of these is tried anyway. If an endpoint does not refuse, Limit is never exceeded.
	Refuses bool
	// OtherZone is true for an endpoint of another zone. Beyond its weight, it gets requests while
	// the endpoints of the own zone are much worse than usual.
	OtherZone bool
	// Apart is true for an endpoint of weight 0 to which the caller itself takes requests, with
	// [Balancer.Take]. Such endpoints are compared and evicted among each other. Others of weight 0 are
	// not evicted.
	Apart bool
	// Value is opaque to selection: the relay keeps its connection pool here.
	Value V
}

// Range holds the endpoints that a balancer picks from.
type Range[V any] struct {
	// Endpoints are in the order of the relay's range in the ring.
	Endpoints []Endpoint[V]
	// MinEffective is the least number of endpoints, counted from the first, that get
	// traffic at any request rate. With ⌈workers/relays⌉ the effective ranges of all
	// relays cover every worker. At least 3 are used in any case. 0 means unknown; then
	// all endpoints get traffic.
	MinEffective int
}

// Update is UpdateRange with a MinEffective of 0: all endpoints get traffic.
func (b *Balancer[V]) Update(endpoints []Endpoint[V], now Instant) error {
	return b.UpdateRange(Range[V]{Endpoints: endpoints}, now)
}

// UpdateRange replaces the range. Endpoints known by ID keep their statistics; new
// endpoints start at the median latency and ramp up. Removed endpoints are forgotten,
// unless they come back before their last ticket was given back. On an error (empty or repeated ID;
// negative, infinite or NaN weight; negative MinEffective; all reported together) the
// old range stays. The slice is copied.
func (b *Balancer[V]) UpdateRange(r Range[V], now Instant) error {
	endpoints := make([]Endpoint[any], len(r.Endpoints))
	for i, e := range r.Endpoints {
		endpoints[i] = Endpoint[any]{ID: e.ID, Weight: e.Weight, Tier: e.Tier, Limit: e.Limit, Refuses: e.Refuses, OtherZone: e.OtherZone, Apart: e.Apart, Value: e.Value}
	}
	return b.update(endpoints, r.MinEffective, now)
}

// Refresh recomputes the medians M and R, evicts endpoints that have been slow for too
// long, makes evicted endpoints half-open at the end of their eviction, and adjusts the
// effective range to the rate of requests. Call Refresh every 250 ms from one goroutine.
// It costs one pass over the range and is never on the path of a request.
func (b *Balancer[V]) Refresh(now Instant) { b.refresh(now) }

// Sent returns how many requests were sent up to the last Refresh, each attempt counted. Those to
// an endpoint that left the range since the Refresh before it are missing.
func (b *Balancer[V]) Sent() uint64 { return b.sentRequests() }

// PickSession is Pick for a request that opens a session: a tunnel such as a WebSocket, or
// a TCP session. It chooses the endpoint with the fewest requests in flight for its weight,
// by a scan of the range.
//
// Pick multiplies the queue by the latency. For requests this is right, because a queue
// ends and a fast endpoint ends it sooner. A session lasts for minutes or days, however
// fast its handshake was: by Pick, an endpoint whose handshakes take half as long gets twice
// as many sessions, and they stay. Two draws would also hardly find the one empty endpoint
// of a long range, such as a worker that was restarted. HAProxy and Nginx use the same rule
// for long sessions (leastconn, least_conn).
//
// If d is not nil, it is overwritten with a description of the pick, and PickSession
// allocates.
func (b *Balancer[V]) PickSession(now Instant, excluded *Exclusion, d *Decision) (Pick[V], error) {
	t, err := b.pickLong(now, excluded, d)
	return Pick[V]{t}, err
}

// PickExplained is Pick with a description in d, which must not be nil and is
// overwritten. It allocates.
func (b *Balancer[V]) PickExplained(now Instant, excluded *Exclusion, d *Decision) (Pick[V], error) {
	t, err := b.pickExplained(now, excluded, d)
	return Pick[V]{t}, err
}

// PickBy is Pick with the choice of c, which only prefers. Which endpoints may get the request is
// decided here: first those that were not tried, are not evicted and have room; then those that
// are at their Limit and refuse requests themselves; then evicted ones and, for a request that was
// tried nowhere, those that have just refused another. If c has no endpoint among all of these, the
// error comes from c, or wraps [ErrFull] if some have no room. x must not be nil. No lock, and no
// allocation but those of c.
func (b *Balancer[V]) PickBy(now Instant, x *Exclusion, c Chooser) (Pick[V], error) {
	t, err := b.pickBy(now, x, c, nil)
	return Pick[V]{t}, err
}

// Take begins a request that must go to the named endpoint of the range, whatever its state.
// The ticket is used like one of Pick, so the statistics include the request. The error wraps
// [ErrNoEndpoint] if the range has no such endpoint, and [ErrFull] if the endpoint is at its Limit and does not refuse
// requests itself. No lock; it allocates only the error.
func (b *Balancer[V]) Take(id string, now Instant) (Pick[V], error) {
	t, err := b.take(id, now)
	return Pick[V]{t}, err
}

// Explain describes how a pick would be made now, with a Chooser as by [Balancer.PickBy]; its random
// draws are independent of later picks. Of what the Chooser chooses only the ID of the Winner is known.
// Explain has no effects: no request is counted, no half-open endpoint is claimed, and the random source
// of the configuration is not read. The error is that of Pick or PickBy. excluded and c may be nil.
func (b *Balancer[V]) Explain(now Instant, excluded *Exclusion, c Chooser) (d Decision, err error) {
	d.dryRun = true
	if c == nil {
		_, err = b.pickExplained(now, excluded, &d)
		return d, err
	}
	if excluded == nil {
		excluded = new(Exclusion)
	}
	_, err = b.pickBy(now, excluded, c, &d)
	return d, err
}

// Stats describes the range in the order of the last Update. It allocates and takes the
// mutex, so do not call it on the path of a request.
func (b *Balancer[V]) Stats(now Instant) []EndpointStats { return b.stats(now) }

// Usable reports whether the named endpoint may get a request now for which it is preferred: it is
// in the range, active, or half-open without a request in flight that tries it, and has room. No
// lock, no allocation.
func (b *Balancer[V]) Usable(id string, now Instant) bool { return b.usable(id, now) }

// Silence returns how long requests have waited for the named endpoint without a sign of
// life from it. It is 0 if no request waits; a request whose answer has begun does not
// wait. No lock, no allocation.
func (b *Balancer[V]) Silence(id string, now Instant) time.Duration { return b.silence(id, now) }

// Load returns how many requests the named endpoint has in flight. If the endpoint has
// reported its count in the last 10 s, sampled is true and the result is that report,
// which counts the requests of all relays, plus the requests that this relay sent since;
// or this relay's requests in flight if these are more, because a report does not count
// the request whose answer carried it. Otherwise the result is this relay's requests in
// flight. It is 0 for an endpoint that is not in the range. No lock, no allocation.
func (b *Balancer[V]) Load(id string, now Instant) (inFlight float64, sampled bool) {
	return b.load(id, now)
}

// InFlight returns the counter of the named endpoint, or the zero value if the endpoint is
// not in the range.
func (b *Balancer[V]) InFlight(id string) InFlight {
	if e := b.table.Load().byID[id]; e != nil {
		return InFlight{e.state}
	}
	return InFlight{}
}
