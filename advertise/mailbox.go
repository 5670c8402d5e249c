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
// them. It keeps the newest few per instance and kind: signatures are checked
// after it, and a forged message with a high sequence must not push out the true
// one. When it is full, messages are turned away and the next exchange brings what
// was lost.
type mailbox struct {
	limit int
	wake  chan struct{} // capacity 1: there is mail

	mu      sync.Mutex
	waiting map[mailKey][]mail
	count   int
}

// mailPerKey is how many messages of one instance and kind wait at a time.
const mailPerKey = 4

type mailKey struct {
	instance instance
	hint     bool
}

func newMailbox(limit int) *mailbox {
	return &mailbox{limit: limit, wake: make(chan struct{}, 1), waiting: map[mailKey][]mail{}}
}

// put reports false when the mailbox is full.
func (b *mailbox) put(m mail) bool {
	taken := b.file(m)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return taken
}

func (b *mailbox) file(m mail) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := mailKey{m.from, m.hint}
	same := b.waiting[key]
	oldest := 0
	for i, w := range same {
		if w.stamp == m.stamp {
			return true
		}
		if w.stamp.compare(same[oldest].stamp) < 0 {
			oldest = i
		}
	}
	switch {
	case len(same) == mailPerKey:
		if m.stamp.compare(same[oldest].stamp) > 0 {
			same[oldest] = m
		}
	case b.count >= b.limit:
		return false
	default:
		b.waiting[key] = append(same, m)
		b.count++
	}
	return true
}

// take empties the mailbox.
func (b *mailbox) take() []mail {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting, b.count = map[mailKey][]mail{}, 0
	b.mu.Unlock()
	var taken []mail
	for _, same := range waiting {
		taken = append(taken, same...)
	}
	return taken
}
