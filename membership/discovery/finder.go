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

	"github.com/prometheus/client_golang/prometheus"
)

// Finder keeps the list of addresses that the seeds lead to. Create it with New,
// run it with Run; all methods may be called from any goroutine.
type Finder struct {
	cfg    Config
	gauge  prometheus.Gauge
	turn   chan struct{} // holds one token: whoever has it refreshes
	places []*place      // one for each seed; only the holder of turn touches them
	looked chan struct{} // capacity 1: the view is new, so Run's pause may be another

	current atomic.Pointer[view]
}

// view is what the last refresh published. It is never changed.
type view struct {
	addrs []netip.AddrPort
	given map[netip.AddrPort]uint64
	seeds []SeedStatus
	due   time.Time // when the first name is to be asked again; zero without names
}

// place is a seed with the addresses that it led to so far.
type place struct {
	seed   Seed
	known  []knownAddr
	serial uint64 // of the last answer that counted
	stale  bool
	err    error     // why the seed does not resolve, or not wholly
	asked  time.Time // when the last answer that counted came
	until  time.Time // when the name is due again
}

type knownAddr struct {
	addr   netip.AddrPort
	missed int    // new answers in a row without it
	given  uint64 // the answer that brought it, or brought it back
}

// SeedStatus says how one seed stands.
type SeedStatus struct {
	// Seed is the seed.
	Seed Seed
	// Addrs are the addresses it leads to now, excluded ones too. Callers must not
	// change them.
	Addrs []netip.AddrPort
	// Stale says that Addrs come from an old answer.
	Stale bool
	// Err says why the seed does not resolve, or which part of it; nil when all is
	// well, and for an IP address always.
	Err error
}

// New checks the configuration and reports all that is wrong with it at once. It
// looks nothing up: only IP:port seeds are listed until the first refresh.
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
	f := &Finder{cfg: cfg, gauge: newSeedsGauge(cfg.Registerer), turn: make(chan struct{}, 1), looked: make(chan struct{}, 1)}
	for _, seed := range seeds {
		p := &place{seed: seed}
		if seed.Kind == KindAddr {
			p.known = []knownAddr{{addr: seed.Addr}}
		}
		f.places = append(f.places, p)
	}
	f.publish()
	return f, nil
}

// Addrs returns the newest addresses, without repetition and without excluded
// ones: in the order of the seeds, and for each seed in the order of its answer
// (SRV: priority, then weight), then those that its answer lacks by now. The slice
// is the caller's. An empty list says only that nobody is known yet.
func (f *Finder) Addrs() []netip.AddrPort { return slices.Clone(f.current.Load().addrs) }

// Given says which answer brought an address: it changes when an answer has the
// address again after one that lacked it, and not while every answer has it. It is
// 0 for an address that is a seed itself and for one that is not listed.
func (f *Finder) Given(addr netip.AddrPort) uint64 { return f.current.Load().given[addr] }

// Seeds says how each seed stands.
func (f *Finder) Seeds() []SeedStatus { return slices.Clone(f.current.Load().seeds) }

// Resolver returns what looks the names up, for its statistics and Invalidate.
func (f *Finder) Resolver() *Resolver { return f.cfg.Resolver }

// Run refreshes at once and then whenever what is known of a name, an answer or a
// failure, no longer counts: after one second at the soonest, after RefreshInterval
// at the latest, plus jitter, until ctx ends. It blocks: the caller owns the
// goroutine, and nothing is left running when Run returns. An answer that still
// counts is not asked for again.
func (f *Finder) Run(ctx context.Context) {
	for {
		_ = f.refresh(ctx, func(*place) Mode { return UseCache }) // logged per seed, when it begins
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-f.looked:
			case <-time.After(f.Pause()):
				waiting = false
			}
		}
	}
}

// Pause is the time until the next refresh, by Run or by a caller that does without
// it. The jitter is the same part of every pause: short ones are not doubled by it.
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

// Refresh asks for every name anew, past the cache, and returns when all answers
// are in: for a caller whom no seed answers. Names that fail keep the addresses
// that they had and are in the error, each with its cause; nil means that every
// seed resolved.
func (f *Finder) Refresh(ctx context.Context) error {
	return f.refresh(ctx, func(*place) Mode { return SkipCache })
}

// Recheck is Refresh for a caller that returns often, with pauses: a name that does
// not resolve is not asked for again while its failure counts, and one that does
// while its answer counts and is younger than oldest. A name of which no server said
// anything is asked for again: a lost packet is no answer.
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
		if p.seed.Kind != KindAddr {
			wg.Go(func() { f.look(ctx, p, mode(p)) })
		}
	}
	wg.Wait()
	f.publish()
	select {
	case f.looked <- struct{}{}:
	default:
	}

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

// finding is an answer for a seed of either kind.
type finding struct {
	addrs   []netip.AddrPort
	stale   bool
	reason  error
	partial bool
	serial  uint64
	until   time.Time
}

// look brings one place up to date.
func (f *Finder) look(ctx context.Context, p *place, mode Mode) {
	found, err := f.lookUp(ctx, p.seed, mode)
	if err != nil && ctx.Err() != nil {
		return // the caller went away: this says nothing about the name
	}
	if err == nil {
		if found.serial > p.serial {
			p.asked = f.cfg.Resolver.cfg.Now()
		}
		p.merge(found, f.cfg.DropAfter)
		err = found.reason
	}
	if err != nil && p.err != nil && found.until.Equal(p.until) {
		err = p.err // the same failure, now from the cache: its text stays the same
	}
	p.until = found.until
	// The resolver has told of stale answers.
	switch {
	case err != nil && p.err == nil && !found.stale:
		f.cfg.Logger.Warn("a seed does not resolve", "seed", p.seed.String(), "known", len(p.known), "err", err)
	case err == nil && p.err != nil && !p.stale:
		f.cfg.Logger.Info("a seed resolves again", "seed", p.seed.String(), "known", len(p.known))
	}
	p.err, p.stale = err, found.stale
}

func (f *Finder) lookUp(ctx context.Context, seed Seed, mode Mode) (finding, error) {
	var out finding
	if seed.Kind == KindHost {
		res, err := f.cfg.Resolver.LookupHost(ctx, seed.Name, mode)
		for _, ip := range res.Addrs {
			out.addrs = append(out.addrs, netip.AddrPortFrom(ip, seed.Port))
		}
		out.stale, out.reason, out.partial, out.serial = res.Stale, res.Reason, res.partial, res.serial
		out.until = res.until
		return out, err
	}
	res, err := f.cfg.Resolver.LookupService(ctx, seed.Name, mode)
	for _, target := range res.Targets {
		for _, ip := range target.Addrs {
			out.addrs = append(out.addrs, netip.AddrPortFrom(ip, target.Port))
		}
	}
	out.stale, out.reason, out.partial, out.serial = res.Stale, res.Reason, res.partial, res.serial
	out.until = res.until
	return out, err
}

// merge takes an answer over. What it has comes first, in its order. What it lacks
// stays behind until dropAfter new answers in a row lacked it (HS-C14); an old
// answer seen again, or half an answer, is no evidence.
func (p *place) merge(found finding, dropAfter int) {
	evidence := !found.stale && !found.partial && found.serial > p.serial
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
			next = append(next, knownAddr{addr: addr, given: cmp.Or(since[addr], found.serial)})
		}
	}
	for _, k := range p.known {
		if listed[k.addr] {
			continue
		}
		if evidence {
			k.missed++
		}
		if k.missed < dropAfter {
			next = append(next, k)
		}
	}
	p.known = next
}

// publish makes a new view. The caller holds turn, or nobody else knows f yet.
func (f *Finder) publish() {
	v := &view{given: make(map[netip.AddrPort]uint64)}
	listed := make(map[netip.AddrPort]bool)
	for _, p := range f.places {
		status := SeedStatus{Seed: p.seed, Stale: p.stale, Err: p.err}
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
