package routing

import (
	"sync"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// pools owns all connections of this relay: one upstream.Pool for each key, which the links to
// workers and the holds on relays hold. The last release closes the pool. All methods may be
// called from any goroutine; none starts a goroutine.
type pools struct {
	open func(poolKey) (*upstream.Pool, error)

	mu    sync.Mutex // guards byKey; never held while a pool is closed
	byKey map[poolKey]*heldPool
}

type heldPool struct {
	*upstream.Pool
	holds int
}

func newPools(open func(poolKey) (*upstream.Pool, error)) *pools {
	return &pools{open: open, byKey: map[poolKey]*heldPool{}}
}

// hold returns the pool for a key. Its caller releases the key once.
func (p *pools) hold(key poolKey) (*upstream.Pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.byKey[key]
	if held == nil {
		opened, err := p.open(key)
		if err != nil {
			return nil, err
		}
		held = &heldPool{Pool: opened}
		p.byKey[key] = held
	}
	held.holds++
	return held.Pool, nil
}

func (p *pools) release(key poolKey) {
	p.mu.Lock()
	held := p.byKey[key]
	held.holds--
	last := held.holds == 0
	if last {
		delete(p.byKey, key)
	}
	p.mu.Unlock()
	if last {
		held.Close()
	}
}

// get returns the pool for a key, nil if no hold of the key exists.
func (p *pools) get(key poolKey) *upstream.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if held := p.byKey[key]; held != nil {
		return held.Pool
	}
	return nil
}

// matching returns the pools whose keys match.
func (p *pools) matching(match func(poolKey) bool) (out []*upstream.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, held := range p.byKey {
		if match(key) {
			out = append(out, held.Pool)
		}
	}
	return out
}
