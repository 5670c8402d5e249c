package pool

import (
	"container/list"
	"time"
)

// bindings remember which peer a key went to. The list is in order of use, the
// last used first.
type bindings struct {
	max       int
	ttl, idle time.Duration
	byKey     map[string]*list.Element
	order     list.List
}

type binding struct {
	key           string
	peer          *peer
	boundAt, used time.Time
}

func newBindings(cfg *Config) bindings {
	return bindings{max: cfg.MaxBindings, ttl: cfg.BindingTTL, idle: cfg.BindingIdle, byKey: map[string]*list.Element{}}
}

// find returns the peer of a key, or nil. Asking counts as use.
func (b *bindings) find(key string, now time.Time) *peer {
	e := b.byKey[key]
	if e == nil {
		return nil
	}
	found := e.Value.(*binding)
	if b.over(found, now) {
		b.remove(e)
		return nil
	}
	found.used = now
	b.order.MoveToFront(e)
	return found.peer
}

// peek is find without counting as use.
func (b *bindings) peek(key string, now time.Time) *peer {
	if e := b.byKey[key]; e != nil && !b.over(e.Value.(*binding), now) {
		return e.Value.(*binding).peer
	}
	return nil
}

func (b *bindings) over(x *binding, now time.Time) bool {
	return now.Sub(x.boundAt) >= b.ttl || now.Sub(x.used) >= b.idle
}

// bind is for a key that find does not know. What was not used for too long goes,
// and then the least recently used.
func (b *bindings) bind(key string, p *peer, now time.Time) {
	if b.max == 0 {
		return
	}
	for e := b.order.Back(); e != nil && b.over(e.Value.(*binding), now); e = b.order.Back() {
		b.remove(e)
	}
	if b.order.Len() >= b.max {
		b.remove(b.order.Back())
	}
	b.byKey[key] = b.order.PushFront(&binding{key: key, peer: p, boundAt: now, used: now})
}

// forget frees the keys of a peer that lost its place.
func (b *bindings) forget(p *peer) {
	for e := b.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*binding).peer == p {
			b.remove(e)
		}
		e = next
	}
}

func (b *bindings) remove(e *list.Element) {
	delete(b.byKey, e.Value.(*binding).key)
	b.order.Remove(e)
}
