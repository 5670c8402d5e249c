package discovery

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// pacer spreads probes of many addresses over time, so that a node that looks for the
// cluster, or a thousand nodes simultaneously, cause no burst (HS-A15). The zero value has
// the defaults.
type pacer struct {
	// Limit is how many probes run simultaneously. Default 10.
	Limit int
	// Timeout ends the context of one probe. Default 500 ms.
	Timeout time.Duration
	// Spread is the time over which the starts are distributed at random. Default 100 ms;
	// negative means none.
	Spread time.Duration
}

// ProbeAll is pacer{}.probeAll: ten probes at a time, 500 ms each, starts spread over 100 ms.
func ProbeAll(ctx context.Context, addrs []netip.AddrPort, probe func(context.Context, netip.AddrPort) error) (reached []netip.AddrPort, errs map[netip.AddrPort]error) {
	return pacer{}.probeAll(ctx, addrs, probe)
}

// probeAll probes each address once and returns when every probe has ended. reached is in
// the order in which the addresses answered, the nearest first; errs has the error of each
// of the others, never nil. The probe must return soon after its context ends. When ctx
// ends, addresses not yet probed fail with its cause.
func (p pacer) probeAll(ctx context.Context, addrs []netip.AddrPort, probe func(context.Context, netip.AddrPort) error) (reached []netip.AddrPort, errs map[netip.AddrPort]error) {
	limit := p.Limit
	if limit <= 0 {
		limit = 10
	}
	timeout := p.Timeout
	if timeout <= 0 {
		timeout = 500 * time.Millisecond
	}
	spread := max(0, cmp.Or(p.Spread, 100*time.Millisecond))

	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		slots = make(chan struct{}, limit)
		seen  = make(map[netip.AddrPort]bool, len(addrs))
	)
	errs = make(map[netip.AddrPort]error)
	one := func(addr netip.AddrPort) error {
		if spread > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("not probed: %w", context.Cause(ctx))
			case <-time.After(rand.N(spread)):
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not probed: %w", context.Cause(ctx))
		case slots <- struct{}{}:
		}
		defer func() { <-slots }()
		probeCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return probe(probeCtx, addr)
	}
	for _, addr := range addrs {
		if seen[addr] {
			continue
		}
		seen[addr] = true
		wg.Go(func() {
			err := one(addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[addr] = err
			} else {
				reached = append(reached, addr)
			}
		})
	}
	wg.Wait()
	return reached, errs
}
