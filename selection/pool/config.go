package pool

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Config is what a [Table] keeps to. Start from [DefaultConfig] and set Selector:
// the zero value is not valid, because 0 backups has a meaning of its own.
type Config struct {
	// Selector is who chooses, normally the id of this member. Members that differ
	// in it prefer different peers; all with the same one would crowd the same
	// eight. Required.
	Selector string

	// Datacenter and Region are where this member is. Empty ones match nothing:
	// with both empty all peers are alike.
	Datacenter, Region string

	// MinPeersPerTier is how many usable peers the nearest tiers must have
	// together; with fewer the next tier joins them. At least 1, default 3.
	MinPeersPerTier int

	// Candidates, K, is how many of the near peers connections may lead to.
	// Fewer make rankings and so connections more stable, more spread better. At
	// least 1, default 8; a pool never has more peers than this.
	Candidates int

	// Primaries is how many peers share the requests. At least 1, default 3.
	Primaries int

	// Backups is how many more are connected, to be promoted. 0 or more, default 2.
	Backups int

	// Alpha is the weight of a new latency sample in a peer's average. More than
	// 0, at most 1, default 0.2.
	Alpha float64

	// ErrorRateThreshold is the share of failures that a peer must surely exceed
	// (Wilson lower bound, z = 4, of counts that decay over 10 s) to be evicted.
	// More than 0, less than 1, default 0.05.
	ErrorRateThreshold float64

	// ConsecutiveFailures is how many failures in a row a peer may have; the next
	// one evicts it. At least 1, default 3 (evicted at the fourth).
	ConsecutiveFailures int

	// LatencyMultiplier: a peer whose average latency exceeds this times the
	// baseline is evicted, if half of its last ten requests exceeded the baseline.
	// More than 1, default 3. The baseline is the median of the other peers' 99th
	// percentiles, and never less than BaselineLatency.
	LatencyMultiplier float64

	// BaselineLatency is the least baseline, so that tenths of a millisecond evict
	// nobody, and stands for the latency of an untried peer as long as none has
	// been measured. More than 0, default 10 ms.
	BaselineLatency time.Duration

	// MaxEviction bounds the time for which an evicted peer, or one that did not
	// let itself be connected to, is no candidate: min(MaxEviction, 2^k s), times
	// 0.5 to 1, for the k-th time. At least 1 s, default 30 s.
	MaxEviction time.Duration

	// MaxAge is how long a peer keeps its place before it is drawn for anew, and
	// replaced, if only by a new connection to itself; every place has its own
	// limit, between 0.9 and 1 of this. So load reaches relays that were added
	// later. More than 0, default 1 h.
	MaxAge time.Duration

	// RefreshInterval is the time between two rankings of the candidates without
	// any other reason; RefreshJitter, at random between 0 and itself, is added.
	// More than 0, default 60 s; 0 or more, default 5 s.
	RefreshInterval, RefreshJitter time.Duration

	// ReplenishMin and ReplenishMax bound the random wait before a lost place is
	// filled, so that a fleet does not recover in step. 0 or more and at least
	// ReplenishMin, defaults 100 ms and 500 ms.
	ReplenishMin, ReplenishMax time.Duration

	// Streams is how many requests one connection carries at a time: 1 for
	// HTTP/1.1. At least 1, default 100, which HTTP/2 servers commonly allow.
	Streams int

	// MaxPerPeer and MaxTotal bound the connections, those that are being opened
	// or still end their last requests included. MaxPerPeer is at least 2 and
	// MaxTotal more than Primaries + Backups, since an old connection is replaced
	// by one that is open already. Defaults 5 and 100.
	MaxPerPeer, MaxTotal int

	// IdleTimeout is when a connection beyond a peer's first is closed for want of
	// requests. The first stays: it is what the place is for. More than 0, default
	// 300 s.
	IdleTimeout time.Duration

	// ConnectTimeout bounds opening a connection, and how long a request waits for
	// one. More than 0, default 10 s.
	ConnectTimeout time.Duration

	// MaxBindings is how many keys are remembered; the least recently used goes
	// first. 0 turns sticky keys off. Default 10,000.
	MaxBindings int

	// BindingTTL is how long a key stays with its peer, BindingIdle how long
	// without being used. More than 0, defaults 1 h and 5 min.
	BindingTTL, BindingIdle time.Duration

	// Rand replaces the random source, so that a run can be repeated. Default nil:
	// math/rand/v2.
	Rand func() uint64
}

// DefaultConfig returns the defaults. Selector is left to the caller.
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

// Validate reports every invalid setting at once, sorted by name, or nil.
func (c Config) Validate() error {
	var bad []string
	check := func(ok bool, name string, value any, allowed string) {
		if !ok {
			bad = append(bad, fmt.Sprintf("pool: %s is %v, allowed is %s", name, value, allowed))
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
		fmt.Sprintf("more than Primaries + Backups (%d): an old connection is replaced by one that is open already", c.Primaries+c.Backups))
	positive("IdleTimeout", c.IdleTimeout)
	positive("ConnectTimeout", c.ConnectTimeout)
	atLeast("MaxBindings", c.MaxBindings, 0)
	positive("BindingTTL", c.BindingTTL)
	positive("BindingIdle", c.BindingIdle)
	slices.Sort(bad)
	errs := make([]error, len(bad))
	for i, text := range bad {
		errs[i] = errors.New(text)
	}
	return errors.Join(errs...)
}
