package membership

import (
	"container/list"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/membership/internal/gossip"
)

const (
	// maxQueued and maxQueuedBytes limit the queue. One message about each of ten thousand
	// members fits.
	maxQueued      = 16384
	maxQueuedBytes = 16 << 20
	// maxPassedOver is how many messages that are too long for the rest of a packet are
	// skipped before the packet is sent as it is, so that the cost of filling it does not
	// depend on the length of the queue.
	maxPassedOver = 16
	// certainty is c in copies: one message in 160,000 misses a member. With 8 copies among 18
	// members, one of eight messages missed a member in 3 % of the runs.
	certainty = 12
	// minSpread is the least number of members for which the number of copies is computed.
	minSpread = 10
)

// queue holds the messages that GetBroadcasts puts into packets, each until it was sent often
// enough. Messages that were sent less often go first, and among equals the oldest: under
// overload all messages wait equally long.
//
// It replaces memberlist's TransmitLimitedQueue, which loses messages: that queue assigns the
// number of an earlier message again after it was empty, and of two messages with the same
// number, length and count of transmissions it keeps only one.
type queue struct {
	members  func() int // in the cluster; called with the lock held
	evicted  func()     // a message was dropped because the queue is full
	messages int        // limits, with bytes
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

// add queues a message and replaces the queued message of that name, if there is one. A full queue
// drops the message that was sent most often. That one has most likely reached the most members. A
// message that replaces another one begins again, because its content has reached none.
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

// take returns the messages of one packet, whose lengths plus overhead for each do not exceed
// limit.
//
// A message that does not fit is passed over for shorter ones, a few times: large messages keep
// their place in the order and go first in the next packet.
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
	for _, m := range again { // only now, so that no message is twice in a packet
		q.insert(m)
	}
	return packet
}

// copies returns how often each member that receives a message sends it: with ln n + c copies all
// n members receive it with probability exp(-exp(-c)) (Kermarrec, Massoulié, Ganesh:
// Probabilistic reliable dissemination in large-scale systems, 2003).
func (q *queue) copies() int {
	return int(math.Ceil(math.Log(float64(max(minSpread, q.members()))) + certainty))
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.byName)
}

// insert puts a message behind those that were sent as often. So the front of a tier is the oldest,
// and take needs no search.
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

// last returns the oldest of the messages that were sent most often.
func (q *queue) last() *list.Element {
	for i := len(q.tiers) - 1; ; i-- {
		if e := q.tiers[i].Front(); e != nil {
			return e
		}
	}
}

// placeholderTimeout is far above what memberlist needs for two messages.
const placeholderTimeout = 30 * time.Second

// keepQueueOccupied puts a message into memberlist's own queue that is too long for any packet, so
// it stays there. While that queue is never empty, it never assigns the number of a message again,
// and so no message displaces another of the same length: memberlist's news of suspicions, deaths
// and joins, and the goodbye of this node.
//
// The message states that an instance that never existed is dead. memberlist must know an instance
// before it passes on its death, so the instance joins first. No other member hears of it but in
// state exchanges of the first half minute, until memberlist forgets it, and ignores it there.
//
// Both messages are in clear text. memberlist accepts that only until this method returns, and the
// transport receives nothing before.
func (n *Node) keepQueueOccupied(c *memberlist.Config) error {
	name := n.delegate.placeholder
	for _, m := range [][]byte{
		gossip.Encode(gossip.KindAlive, &gossip.Alive{Incarnation: 1, Node: name, Addr: n.advertise.Addr().AsSlice(), Vsn: c.BuildVsnArray()}),
		gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: 1, Node: name, From: strings.Repeat(".", 2*c.UDPBufferSize)}),
	} {
		n.transport.queue(&memberlist.Packet{Buf: append(slices.Clone(n.transport.header), m...), From: n.transport.packets.LocalAddr(), Timestamp: time.Now()})
		select {
		case <-n.delegate.placed:
		case <-time.After(placeholderTimeout):
			return errors.New("memberlist does not handle messages")
		}
	}
	c.GossipVerifyIncoming = true
	return nil
}
