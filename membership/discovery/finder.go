package discovery

import (
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

	current atomic.Pointer[view]
}

// view is what the last refresh published. It is never changed.
type view struct {
	addrs []netip.AddrPort
	seeds []SeedStatus
}

// place is a seed with the addresses that it led to so far.
type place struct {
	seed   Seed
	known  []knownAddr
	serial uint64 // of the last answer that counted
	stale  bool
	err    error // why the seed does not resolve, or not wholly
}

type knownAddr struct {
	addr   netip.AddrPort
	missed int // new answers in a row without it
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
	f := &Finder{cfg: cfg, gauge: newSeedsGauge(cfg.Registerer), turn: make(chan struct{}, 1)}
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

// Seeds says how each seed stands.
func (f *Finder) Seeds() []SeedStatus { return slices.Clone(f.current.Load().seeds) }

// Resolver returns what looks the names up, for its statistics and Invalidate.
func (f *Finder) Resolver() *Resolver { return f.cfg.Resolver }

// Run refreshes at once and then every RefreshInterval plus jitter, until ctx
// ends. It blocks: the caller owns the goroutine, and nothing is left running
// when Run returns. An answer that still counts is not asked for again.
func (f *Finder) Run(ctx context.Context) {
	for {
		_ = f.refresh(ctx, UseCache) // logged per seed, when it begins
		pause := f.cfg.RefreshInterval
		if f.cfg.RefreshJitter > 0 {
			pause += rand.N(f.cfg.RefreshJitter)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Refresh asks for every name anew, past the cache, and returns when all answers
// are in: for a caller whom no seed answers. Names that fail keep the addresses
// that they had and are in the error, each with its cause; nil means that every
// seed resolved.
func (f *Finder) Refresh(ctx context.Context) error {
	if err := f.refresh(ctx, SkipCache); err != nil {
		return fmt.Errorf("refresh seeds: %w", err)
	}
	return nil
}

func (f *Finder) refresh(ctx context.Context, mode Mode) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var wg sync.WaitGroup
	for _, p := range f.places {
		if p.seed.Kind != KindAddr {
			wg.Go(func() { f.look(ctx, p, mode) })
		}
	}
	wg.Wait()
	f.publish()

	var errs []error
	for _, p := range f.places {
		if p.err != nil {
			errs = append(errs, fmt.Errorf("seed %s: %w", p.seed, p.err))
		}
	}
	return errors.Join(errs...)
}

// finding is an answer for a seed of either kind.
type finding struct {
	addrs   []netip.AddrPort
	stale   bool
	reason  error
	partial bool
	serial  uint64
}

// look brings one place up to date.
func (f *Finder) look(ctx context.Context, p *place, mode Mode) {
	found, err := f.lookUp(ctx, p.seed, mode)
	if err != nil && ctx.Err() != nil {
		return // the caller went away: this says nothing about the name
	}
	if err == nil {
		p.merge(found, f.cfg.DropAfter)
		err = found.reason
	}
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
		return out, err
	}
	res, err := f.cfg.Resolver.LookupService(ctx, seed.Name, mode)
	for _, target := range res.Targets {
		for _, ip := range target.Addrs {
			out.addrs = append(out.addrs, netip.AddrPortFrom(ip, target.Port))
		}
	}
	out.stale, out.reason, out.partial, out.serial = res.Stale, res.Reason, res.partial, res.serial
	return out, err
}

// merge takes an answer over. What it has comes first, in its order. What it lacks
// stays behind until dropAfter new answers in a row lacked it (HS-C14); an old
// answer seen again, or half an answer, is no evidence.
func (p *place) merge(found finding, dropAfter int) {
	evidence := !found.stale && !found.partial && found.serial > p.serial
	p.serial = max(p.serial, found.serial)
	next := make([]knownAddr, 0, len(found.addrs))
	listed := make(map[netip.AddrPort]bool, len(found.addrs))
	for _, addr := range found.addrs {
		if !listed[addr] {
			listed[addr] = true
			next = append(next, knownAddr{addr: addr})
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
	v := &view{}
	listed := make(map[netip.AddrPort]bool)
	for _, p := range f.places {
		status := SeedStatus{Seed: p.seed, Stale: p.stale, Err: p.err}
		for _, k := range p.known {
			status.Addrs = append(status.Addrs, k.addr)
			if !listed[k.addr] && !f.cfg.Exclude(k.addr) {
				listed[k.addr] = true
				v.addrs = append(v.addrs, k.addr)
			}
		}
		v.seeds = append(v.seeds, status)
	}
	f.current.Store(v)
	f.gauge.Set(float64(len(v.addrs)))
}
