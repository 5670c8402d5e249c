package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/publish"
)

// Finder keeps the list of addresses of the seeds. Create it with New, run it with Run; all
// methods may be called from any goroutine.
type Finder struct {
	cfg         Config
	gauge       prometheus.Gauge
	turn        chan struct{} // holds one token: only its holder refreshes
	places      []*place      // one for each seed; only the holder of turn accesses them
	viewChanged chan struct{} // capacity 1: the view changed, so the pause of Run may have changed

	current atomic.Pointer[view]
}

// view is the published result of a refresh. It is never changed.
type view struct {
	addrs []netip.AddrPort
	given map[netip.AddrPort]uint64
	seeds []seedStatus
	due   time.Time // when the first name must be looked up again; zero without names
}

// place is a seed with its known addresses.
type place struct {
	seed   Seed
	known  []knownAddr
	serial uint64 // of the last answer that was used
	stale  bool
	err    error     // why the seed does not resolve, or only in part
	asked  time.Time // when the last answer that was used arrived
	until  time.Time // when the name must be looked up again
}

type knownAddr struct {
	addr   netip.AddrPort
	hosts  []string // the targets of a service that have the address; for a host its name
	missed int      // consecutive new answers without this address
	given  uint64   // the answer that first contained it, or contained it again
}

// seedStatus is the state of one seed.
type seedStatus struct {
	// Seed is the seed.
	Seed Seed
	// Addrs are the current addresses of the seed, including excluded ones. Callers must not
	// change them.
	Addrs []netip.AddrPort
	// Stale is true if Addrs come from an old answer.
	Stale bool
	// Err is why the seed does not resolve completely; nil if it does, and always nil for an IP
	// address.
	Err error
}

// New checks the configuration and reports all problems together. It looks up no names:
// only IP:port seeds are listed until the first refresh.
func New(cfg Config) (*Finder, error) {
	cfg, seeds, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	if cfg.Resolver == nil {
		cfg.Resolver, err = NewResolver(ResolverConfig{Logger: cfg.Logger, Registerer: cfg.Registerer})
		if err != nil {
			return nil, err
		}
	}
	f := &Finder{cfg: cfg, gauge: newSeedsGauge(cfg.Registerer), turn: make(chan struct{}, 1), viewChanged: make(chan struct{}, 1)}
	for _, seed := range seeds {
		p := &place{seed: seed}
		if seed.Kind == kindAddr {
			p.known = []knownAddr{{addr: seed.Addr}}
		}
		f.places = append(f.places, p)
	}
	f.publish()
	return f, nil
}

// Addrs returns the newest addresses, without duplicates and without excluded addresses: in
// the order of the seeds, and for each seed in the order of its answer (SRV: priority, then
// weight), followed by the addresses that its newest answer lacks. The slice is the
// caller's. An empty list only means that no member is known yet.
func (f *Finder) Addrs() []netip.AddrPort { return slices.Clone(f.current.Load().addrs) }

// Given identifies the answer that introduced an address: it changes when an answer
// contains the address again after one that lacked it, and stays the same while every
// answer contains it. It is 0 for an address that is itself a seed and for one that is not
// listed.
func (f *Finder) Given(addr netip.AddrPort) uint64 { return f.current.Load().given[addr] }

// Resolver returns the resolver of the names, for its statistics and Invalidate.
func (f *Finder) Resolver() *Resolver { return f.cfg.Resolver }

// Run refreshes immediately, and then whenever an answer or a failure expires: after one
// second at the earliest, after RefreshInterval at the latest, plus jitter, until ctx ends.
// It blocks: the caller owns the goroutine, and no goroutine is left running when Run
// returns. Answers that are still valid are not looked up again.
func (f *Finder) Run(ctx context.Context) {
	for {
		_ = f.refresh(ctx, func(*place) Mode { return UseCache }) // look logs errors per seed, when they begin
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-f.viewChanged:
			case <-time.After(f.Pause()):
				waiting = false
			}
		}
	}
}

// Pause returns the time until the next refresh, for Run or for a caller that does not use
// Run. The jitter is in proportion to the pause.
func (f *Finder) Pause() time.Duration {
	pause := f.cfg.RefreshInterval
	if due := f.current.Load().due; !due.IsZero() {
		pause = min(pause, max(due.Sub(f.cfg.Resolver.cfg.Now()), minTTL))
	}
	jitter := time.Duration(float64(f.cfg.RefreshJitter) * float64(pause) / float64(f.cfg.RefreshInterval))
	if jitter > 0 {
		pause += rand.N(jitter)
	}
	return pause
}

// Refresh looks up every name again, without the cache, and returns when all answers have
// arrived: for a caller that no seed answers. Names that fail keep their addresses and are
// in the error, each with its cause; nil means that every seed resolved.
func (f *Finder) Refresh(ctx context.Context) error {
	return f.refresh(ctx, func(*place) Mode { return SkipCache })
}

// Recheck is Refresh for a caller that returns often, with pauses: a name that does not
// resolve is not looked up again while its failure is valid, and one that resolves is not
// while its answer is valid and younger than oldest. A name for which no server answered is
// looked up again, because a packet may have been lost.
func (f *Finder) Recheck(ctx context.Context, oldest time.Duration) error {
	return f.refresh(ctx, func(p *place) Mode {
		if unheard(p.err) || p.err == nil && !p.asked.IsZero() && f.cfg.Resolver.cfg.Now().Sub(p.asked) >= oldest {
			return SkipCache
		}
		return UseCache
	})
}

func (f *Finder) refresh(ctx context.Context, mode func(*place) Mode) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fmt.Errorf("refresh seeds: %w", context.Cause(ctx))
	}
	var wg sync.WaitGroup
	for _, p := range f.places {
		if p.seed.Kind != kindAddr {
			wg.Go(func() { f.resolve(ctx, p, mode(p)) })
		}
	}
	wg.Wait()
	f.publish()
	publish.Notify(f.viewChanged)

	var errs []error
	for _, p := range f.places {
		if p.err != nil {
			errs = append(errs, fmt.Errorf("seed %s: %w", p.seed, p.err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("refresh seeds: %w", err)
	}
	return nil
}

// finding is the result of looking up a seed of either kind.
type finding struct {
	addrs  []netip.AddrPort
	hosts  map[netip.AddrPort][]string // as in knownAddr
	stale  bool
	old    bool                // no part of it is new
	failed map[string]families // by host: which addresses may be missing only because of a failure
	reason error
	serial uint64
	until  time.Time
}

// add lists an address of a host.
func (f *finding) add(host string, addr netip.AddrPort) {
	f.addrs = append(f.addrs, addr)
	f.hosts[addr] = append(f.hosts[addr], host)
}

// excuses reports whether an address may be missing only because of a failure.
func (f *finding) excuses(k knownAddr) bool {
	return slices.ContainsFunc(k.hosts, func(host string) bool { return f.failed[host].contain(k.addr.Addr()) })
}

// resolve updates one place.
func (f *Finder) resolve(ctx context.Context, p *place, mode Mode) {
	found, err := f.lookUp(ctx, p.seed, mode)
	if err != nil && ctx.Err() != nil {
		return // the caller was cancelled, which is no evidence about the name
	}
	if err == nil {
		if found.serial > p.serial {
			p.asked = f.cfg.Resolver.cfg.Now()
		}
		p.merge(found, f.cfg.DropAfter)
		err = found.reason
	}
	if err != nil && p.err != nil && found.until.Equal(p.until) {
		err = p.err // the same failure, now from the cache: keep its text
	}
	p.until = found.until
	// The resolver has already logged stale answers.
	switch {
	case err != nil && p.err == nil && !found.stale:
		f.cfg.Logger.Warn("a seed does not resolve", "seed", p.seed.String(), "known", len(p.known), "err", err)
	case err == nil && p.err != nil && !p.stale:
		f.cfg.Logger.Info("a seed resolves again", "seed", p.seed.String(), "known", len(p.known))
	}
	p.err, p.stale = err, found.stale
}

func (f *Finder) lookUp(ctx context.Context, seed Seed, mode Mode) (finding, error) {
	out := finding{hosts: make(map[netip.AddrPort][]string)}
	if seed.Kind == kindHost {
		res, err := f.cfg.Resolver.LookupHost(ctx, seed.Name, mode)
		for _, ip := range res.Addrs {
			out.add(seed.Name, netip.AddrPortFrom(ip, seed.Port))
		}
		out.stale, out.old, out.reason, out.serial = res.Stale, res.Stale, res.Reason, res.serial
		out.failed = map[string]families{seed.Name: res.failed}
		out.until = res.until
		return out, err
	}
	res, err := f.cfg.Resolver.lookupService(ctx, seed.Name, mode)
	for _, target := range res.Targets {
		for _, ip := range target.Addrs {
			out.add(target.Host, netip.AddrPortFrom(ip, target.Port))
		}
	}
	if extra := len(out.addrs) - maxAddresses; extra > 0 {
		f.cfg.Resolver.metrics.dropped.WithLabelValues(dropMany).Add(float64(extra))
		out.addrs = out.addrs[:maxAddresses]
	}
	out.stale, out.old, out.reason, out.serial = res.Stale, res.old, res.Reason, res.serial
	out.failed = res.failed
	out.until = res.until
	return out, err
}

// merge applies an answer. Its addresses come first, in its order. Addresses that it lacks
// stay at the end until dropAfter consecutive new answers lacked them (HS-C14). A repeated answer
// is no evidence. An answer with a failed part is none about the addresses of that part alone: a
// failure that lasts would keep all others.
func (p *place) merge(found finding, dropAfter int) {
	evidence := !found.old && found.serial > p.serial
	p.serial = max(p.serial, found.serial)
	since := make(map[netip.AddrPort]uint64, len(p.known))
	for _, k := range p.known {
		if k.missed == 0 {
			since[k.addr] = k.given
		}
	}
	next := make([]knownAddr, 0, len(found.addrs))
	listed := make(map[netip.AddrPort]bool, len(found.addrs))
	for _, addr := range found.addrs {
		if !listed[addr] {
			listed[addr] = true
			next = append(next, knownAddr{addr: addr, hosts: found.hosts[addr], given: cmp.Or(since[addr], found.serial)})
		}
	}
	for _, k := range p.known {
		if listed[k.addr] {
			continue
		}
		if evidence && !found.excuses(k) {
			k.missed++
		}
		if k.missed < dropAfter {
			next = append(next, k)
		}
	}
	p.known = next
}

// publish publishes a new view. The caller holds turn, or f is not shared yet.
func (f *Finder) publish() {
	v := &view{given: make(map[netip.AddrPort]uint64)}
	listed := make(map[netip.AddrPort]bool)
	for _, p := range f.places {
		status := seedStatus{Seed: p.seed, Stale: p.stale, Err: p.err}
		for _, k := range p.known {
			status.Addrs = append(status.Addrs, k.addr)
			v.given[k.addr] = max(v.given[k.addr], k.given)
			if !listed[k.addr] && !f.cfg.Exclude(k.addr) {
				listed[k.addr] = true
				v.addrs = append(v.addrs, k.addr)
			}
		}
		v.seeds = append(v.seeds, status)
		if !p.until.IsZero() && (v.due.IsZero() || p.until.Before(v.due)) {
			v.due = p.until
		}
	}
	f.current.Store(v)
	f.gauge.Set(float64(len(v.addrs)))
}

// Backoff returns the pauses between attempts to join while no seed answers: 500 ms, doubled up to
// 15 s, each ± 25 % so that members that started together do not retry together (HS-A16). The
// sequence never ends. The result is not safe for concurrent use.
func Backoff() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{
		InitialInterval:     500 * time.Millisecond,
		RandomizationFactor: 0.25,
		Multiplier:          2,
		MaxInterval:         15 * time.Second,
	}
	b.Reset()
	return b
}

// changes measures how often the whole set of addresses of one name changes. One answer is
// one observation, however many addresses it has: a headless service with ten addresses is
// not in flux (T-HS3).
type changes struct {
	last  []netip.Addr // sorted; nil before the first answer
	times []time.Time  // of the newest changes within the window
}

// fluxLimits determine what is too often.
type fluxLimits struct {
	most   int
	window time.Duration
}

// see records an answer. changed is true if the set differs from the last one; tooOften if
// it changed more than limits.most times within the window.
func (c *changes) see(addrs []netip.Addr, now time.Time, limits fluxLimits) (changed, tooOften bool) {
	set := slices.Clone(addrs)
	slices.SortFunc(set, netip.Addr.Compare)
	changed = c.last != nil && !slices.Equal(set, c.last)
	c.last = set
	c.times = slices.DeleteFunc(c.times, func(t time.Time) bool { return now.Sub(t) >= limits.window })
	if changed {
		c.times = append(c.times, now)
		if extra := len(c.times) - (limits.most + 1); extra > 0 { // older changes are not needed
			c.times = slices.Delete(c.times, 0, extra)
		}
	}
	return changed, len(c.times) > limits.most
}
