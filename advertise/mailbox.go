package advertise

import "sync"

// mail is one gossip message, its head decoded. Either raw is a record, or hint
// says where a record is to be had.
type mail struct {
	from  instance // whose record it is, not who sent it
	stamp stamp
	raw   []byte
	hint  bool
}

// mailbox takes messages from the network's goroutines without ever blocking
// them. It keeps the newest per instance and kind; when it is full, new instances
// are turned away and the next exchange brings what was lost.
type mailbox struct {
	limit int
	wake  chan struct{} // capacity 1: there is mail

	mu      sync.Mutex
	waiting map[mailKey]mail
}

type mailKey struct {
	instance instance
	hint     bool
}

func newMailbox(limit int) *mailbox {
	return &mailbox{limit: limit, wake: make(chan struct{}, 1), waiting: map[mailKey]mail{}}
}

// put reports false when the mailbox is full.
func (b *mailbox) put(m mail) bool {
	key := mailKey{m.from, m.hint}
	b.mu.Lock()
	waiting, replace := b.waiting[key]
	full := !replace && len(b.waiting) >= b.limit
	if !full && (!replace || m.stamp.compare(waiting.stamp) > 0) {
		b.waiting[key] = m
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return !full
}

// take empties the mailbox.
func (b *mailbox) take() map[mailKey]mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting = map[mailKey]mail{}
	return taken
}
