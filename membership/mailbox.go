package membership

import "sync"

// sighting is what a delegate callback says about one instance: a copy, since
// memberlist's own value changes under us.
type sighting struct {
	name string
	meta []byte
	addr string
	gone bool
}

// mailbox carries sightings from memberlist's callbacks, which run under its
// lock, to the event loop. Only the newest of an instance is kept, so it never
// fills up and post never blocks.
type mailbox struct {
	mu     sync.Mutex
	byName map[string]sighting
	order  []string
	wake   chan struct{} // capacity 1
}

func newMailbox() *mailbox {
	return &mailbox{byName: make(map[string]sighting), wake: make(chan struct{}, 1)}
}

func (b *mailbox) post(s sighting) {
	b.mu.Lock()
	if _, waiting := b.byName[s.name]; !waiting {
		b.order = append(b.order, s.name)
	}
	b.byName[s.name] = s
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take empties the mailbox, oldest first.
func (b *mailbox) take() []sighting {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]sighting, 0, len(b.order))
	for _, name := range b.order {
		out = append(out, b.byName[name])
	}
	clear(b.byName)
	b.order = b.order[:0]
	return out
}
