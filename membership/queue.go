package membership

import (
	"container/list"
	"math"
	"sync"
)

const (
	// maxQueued and maxQueuedBytes bound the queue. One news of each of ten thousand
	// members fits.
	maxQueued      = 16384
	maxQueuedBytes = 16 << 20
	// maxPassedOver is how many messages that are too long for the rest of a packet
	// are looked at before the packet goes as it is, so that filling it costs the
	// same however long the queue is.
	maxPassedOver = 16
	// certainty is c in copies: one message in 160,000 misses a member. With 8 copies
	// among 18 members one of eight messages missed one in 3 % of the tries.
	certainty = 12
	// minSpread is the number of members that messages are sent for at least.
	minSpread = 10
)

// queue holds the messages that GetBroadcasts puts into packets, each until it was
// sent often enough. A message goes before all that were sent more often, and after
// those sent as often that came earlier: where more is queued than can be sent, each
// waits equally long.
//
// It does the work of memberlist's TransmitLimitedQueue, which loses messages: that
// one gives the number of an earlier message to a new one when it was empty in
// between, and of two messages with the same number, length and count of
// transmissions it keeps one.
type queue struct {
	members  func() int // in the cluster; called with the lock held
	evicted  func()     // a message was dropped because the queue is full
	messages int        // the bounds
	bytes    int

	mu     sync.Mutex
	byName map[string]*list.Element
	tiers  []*list.List // of *queued, by how often they were sent
	queued int          // bytes
}

type queued struct {
	name    string
	message []byte
	sent    int
}

func newQueue(members func() int, evicted func()) *queue {
	return &queue{members: members, evicted: evicted, messages: maxQueued, bytes: maxQueuedBytes, byName: map[string]*list.Element{}}
}

// add queues a message in the place of the queued one of that name, if there is one.
// A full queue drops what was sent most often.
func (q *queue) add(name string, message []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.byName[name]; old != nil {
		q.remove(old)
	}
	for len(q.byName) > 0 && (len(q.byName) >= q.messages || q.queued+len(message) > q.bytes) {
		q.remove(q.last())
		q.evicted()
	}
	q.insert(&queued{name: name, message: message})
}

// take returns the messages of one packet: each needs its length and overhead, all
// together at most limit.
func (q *queue) take(overhead, limit int) (packet [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	enough := q.copies()
	free, passedOver := limit-overhead, 0
	var again []*queued
	for _, tier := range q.tiers {
		for e := tier.Front(); e != nil && free > 0 && passedOver < maxPassedOver; {
			m, here := e.Value.(*queued), e
			e = e.Next()
			if len(m.message) > free {
				passedOver++
				continue
			}
			packet = append(packet, m.message)
			free -= overhead + len(m.message)
			q.remove(here)
			if m.sent++; m.sent < enough {
				again = append(again, m)
			}
		}
	}
	for _, m := range again { // not before: each goes into a packet once
		q.insert(m)
	}
	return packet
}

// copies is how often a message is sent by each member that hears it: with ln n + c
// copies all n hear it with probability exp(-exp(-c)) (Kermarrec, Massoulié, Ganesh:
// Probabilistic reliable dissemination in large-scale systems, 2003).
func (q *queue) copies() int {
	return int(math.Ceil(math.Log(float64(max(minSpread, q.members()))) + certainty))
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.byName)
}

func (q *queue) insert(m *queued) {
	for len(q.tiers) <= m.sent {
		q.tiers = append(q.tiers, list.New())
	}
	q.byName[m.name] = q.tiers[m.sent].PushBack(m)
	q.queued += len(m.message)
}

func (q *queue) remove(e *list.Element) {
	m := e.Value.(*queued)
	q.tiers[m.sent].Remove(e)
	delete(q.byName, m.name)
	q.queued -= len(m.message)
}

// last is the oldest of those that were sent most often.
func (q *queue) last() *list.Element {
	for i := len(q.tiers) - 1; ; i-- {
		if e := q.tiers[i].Front(); e != nil {
			return e
		}
	}
}
