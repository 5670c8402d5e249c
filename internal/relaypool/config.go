package relaypool

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Config holds the settings of a [Pool]. Start from [DefaultConfig] and set Selector: the
// zero value is not valid, because 0 backups is a valid setting and not the default.
type Config struct {
	// Selector identifies the member that chooses, normally by its id. Members with
	// different selectors prefer different peers; with equal selectors all members would
	// use the same eight. Required.
	Selector string

	// Datacenter and Region are the place of this member. Empty values match nothing: if
	// both are empty, all peers are equally near.
	Datacenter, Region string

	// MinPeersPerTier is how many usable peers the nearest tiers must have together; with
	// fewer, the next tier is added. At least 1, default 3.
	MinPeersPerTier int

	// Candidates, K, is how many of the near peers can be connected to. Fewer candidates
	// make connections more stable, more spread the load better. At least 1, default 8; a
	// pool never has more peers than this.
	Candidates int

	// Primaries is how many peers share the requests. At least 1, default 3.
	Primaries int

	// Backups is how many more peers are connected, ready to be promoted. 0 or more,
	// default 2.
	Backups int

	// Alpha is the weight of a new latency sample in a peer's average. More than
	// 0, at most 1, default 0.2.
	Alpha float64

	// ErrorRateThreshold is by how much the failure share of a peer must exceed that of the
	// others, with statistical certainty (z = 4) and in 20 recent requests or more, for an
	// eviction. If the others had fewer requests, the share itself must surely exceed it, and
	// be three times theirs. More than 0, less than 1, default 0.05.
	ErrorRateThreshold float64

	// ConsecutiveFailures is how many failures in a row a peer may have; the next failure
	// evicts it while the others fail less than ErrorRateThreshold. At least 1, default 3
	// (evicted at the fourth).
	ConsecutiveFailures int

	// LatencyMultiplier: a peer is evicted if its average latency exceeds the baseline
	// this many times and the median of its last ten requests exceeds the baseline. More
	// than 1, default 3. The baseline is the median of the other peers' 99th percentiles,
	// and never less than BaselineLatency.
	LatencyMultiplier float64

	// BaselineLatency is the lower limit of the baseline, so that differences of tenths of
	// a millisecond evict no peer. It is also the assumed latency of an untried peer while
	// no latency has been measured. More than 0, default 10 ms.
	BaselineLatency time.Duration

	// MaxEviction limits how long a peer is not a candidate after an eviction for its
	// health: min(MaxEviction, 2^k s), times 0.5 to 1, for the k-th time in a row. After a
	// failed connection k is always 1. At least 1 s, default 30 s.
	MaxEviction time.Duration

	// MaxAge is how long a peer keeps its place. Then a successor is drawn, which may be a
	// new connection to the same peer; every place has its own random limit between 0.9
	// and 1 of MaxAge. So load reaches relays that were added later. More than 0, default
	// 1 h.
	MaxAge time.Duration

	// RefreshInterval is the time between two regular rankings of the candidates. A random
	// time up to RefreshJitter is added. RefreshInterval: more than 0, default 60 s;
	// RefreshJitter: 0 or more, default 5 s.
	RefreshInterval, RefreshJitter time.Duration

	// ReplenishMin and ReplenishMax limit the random wait before a lost place is filled,
	// so that the members of a fleet do not reconnect simultaneously. ReplenishMin: 0 or
	// more, default 100 ms; ReplenishMax: at least ReplenishMin, default 500 ms.
	ReplenishMin, ReplenishMax time.Duration

	// Streams is how many requests one connection carries at a time: 1 for
	// HTTP/1.1. At least 1, default 100, which HTTP/2 servers commonly allow; see Lease.Full
	// for those that allow fewer.
	Streams int

	// MaxPerPeer and MaxTotal limit the connections, including those that are being opened
	// or draining. MaxPerPeer must be at least 2 and MaxTotal more than Primaries +
	// Backups, because an old connection is closed only when its replacement is open.
	// Defaults 5 and 100.
	MaxPerPeer, MaxTotal int

	// IdleTimeout is how long a connection other than a peer's first may be without
	// requests before it is closed. The first connection stays open. More than 0, default
	// 300 s.
	IdleTimeout time.Duration

	// ConnectTimeout limits the time to open a connection, and how long a request waits
	// for one. More than 0, default 10 s.
	ConnectTimeout time.Duration

	// MaxBindings is how many sticky keys are stored; the least recently used is removed
	// first. 0 turns sticky keys off. Default 10,000.
	MaxBindings int

	// BindingTTL is how long a key stays with its peer, BindingIdle how long without use.
	// More than 0, defaults 1 h and 5 min.
	BindingTTL, BindingIdle time.Duration

	// Rand replaces the random source, so that a run is reproducible. Default nil:
	// math/rand/v2.
	Rand func() uint64
}

// DefaultConfig returns the defaults. The caller must set Selector.
func DefaultConfig() Config {
	return Config{
		MinPeersPerTier: 3, Candidates: 8, Primaries: 3, Backups: 2,
		Alpha: 0.2, ErrorRateThreshold: 0.05, ConsecutiveFailures: 3,
		LatencyMultiplier: 3, BaselineLatency: 10 * time.Millisecond,
		MaxEviction: 30 * time.Second, MaxAge: time.Hour,
		RefreshInterval: time.Minute, RefreshJitter: 5 * time.Second,
		ReplenishMin: 100 * time.Millisecond, ReplenishMax: 500 * time.Millisecond,
		Streams: 100, MaxPerPeer: 5, MaxTotal: 100,
		IdleTimeout: 300 * time.Second, ConnectTimeout: 10 * time.Second,
		MaxBindings: 10_000, BindingTTL: time.Hour, BindingIdle: 5 * time.Minute,
	}
}

// Validate reports all invalid settings together, sorted by name, or nil.
func (c Config) Validate() error {
	var bad []error
	check := func(ok bool, name string, value any, allowed string) {
		if !ok {
			bad = append(bad, fmt.Errorf("pool: %s is %v, allowed is %s", name, value, allowed))
		}
	}
	atLeast := func(name string, value, least int) {
		check(value >= least, name, value, fmt.Sprintf("%d or more", least))
	}
	positive := func(name string, value time.Duration) { check(value > 0, name, value, "more than 0") }

	check(c.Selector != "", "Selector", `""`, "the id of the member that chooses")
	atLeast("MinPeersPerTier", c.MinPeersPerTier, 1)
	atLeast("Candidates", c.Candidates, 1)
	atLeast("Primaries", c.Primaries, 1)
	atLeast("Backups", c.Backups, 0)
	check(c.Alpha > 0 && c.Alpha <= 1, "Alpha", c.Alpha, "more than 0, at most 1")
	check(c.ErrorRateThreshold > 0 && c.ErrorRateThreshold < 1, "ErrorRateThreshold", c.ErrorRateThreshold, "more than 0, less than 1")
	atLeast("ConsecutiveFailures", c.ConsecutiveFailures, 1)
	check(c.LatencyMultiplier > 1 && !math.IsInf(c.LatencyMultiplier, 1), "LatencyMultiplier", c.LatencyMultiplier, "more than 1")
	positive("BaselineLatency", c.BaselineLatency)
	check(c.MaxEviction >= time.Second, "MaxEviction", c.MaxEviction, "1s or more")
	positive("MaxAge", c.MaxAge)
	positive("RefreshInterval", c.RefreshInterval)
	check(c.RefreshJitter >= 0, "RefreshJitter", c.RefreshJitter, "0 or more")
	check(c.ReplenishMin >= 0, "ReplenishMin", c.ReplenishMin, "0 or more")
	check(c.ReplenishMax >= c.ReplenishMin, "ReplenishMax", c.ReplenishMax, fmt.Sprintf("ReplenishMin (%v) or more", c.ReplenishMin))
	atLeast("Streams", c.Streams, 1)
	atLeast("MaxPerPeer", c.MaxPerPeer, 2)
	check(c.MaxTotal > c.Primaries+c.Backups, "MaxTotal", c.MaxTotal,
		fmt.Sprintf("more than Primaries + Backups (%d): an old connection is closed only when its replacement is open", c.Primaries+c.Backups))
	positive("IdleTimeout", c.IdleTimeout)
	positive("ConnectTimeout", c.ConnectTimeout)
	atLeast("MaxBindings", c.MaxBindings, 0)
	positive("BindingTTL", c.BindingTTL)
	positive("BindingIdle", c.BindingIdle)
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(bad...)
}

// Errors that the errors of Acquire wrap.
var (
	// ErrNoPeers: there are no peers to connect to.
	ErrNoPeers = errors.New("pool: no peers: name seeds that resolve, or wait for members to join")
	// ErrExhausted: every connection is full and the limits allow no more.
	ErrExhausted = errors.New("connection pool exhausted")
	// ErrUnavailable: there are peers, but none is connected.
	ErrUnavailable = errors.New("pool: no peer is connected")
	// ErrExcluded: the request has tried every peer that is connected.
	ErrExcluded = errors.New("pool: every connected peer is excluded by this request; return its last error")
	// ErrClosed: Run has ended.
	ErrClosed = errors.New("pool: closed; requests need a pool whose Run has not ended")

	// errNotYet: a connection will come; wait until something changes.
	errNotYet = errors.New("pool: not connected yet")
)

func (t *table) exhausted() error {
	return fmt.Errorf("%w (%d connections, at most %d per peer and %d in total, %d requests each or fewer if the peer allows fewer): answer with overload, or raise MaxPerPeer, MaxTotal, Streams or the limit of the peers",
		ErrExhausted, len(t.links), t.cfg.MaxPerPeer, t.cfg.MaxTotal, t.cfg.Streams)
}

// unavailable returns an error with the peer that will be tried first.
func (t *table) unavailable() error {
	if len(t.evicted) == 0 {
		return ErrUnavailable
	}
	next := t.evicted[0]
	for _, p := range t.evicted {
		if p.evictedUntil.Before(next.evictedUntil) {
			next = p
		}
	}
	return fmt.Errorf("%w: all %d failed; %s (%s) is tried again in %v: check that it runs and can be reached",
		ErrUnavailable, len(t.peers), next.ID, next.reason, next.evictedUntil.Sub(t.now).Round(time.Millisecond))
}
