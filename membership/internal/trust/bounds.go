package trust

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// Everything that one certificate can make grow at another member is bounded for that
// certificate, so that a member that was taken over takes no place of another one. This is the
// table of this package; SECURITY.md has it with the bounds of the other packages. A counter
// without a name is ringway_membership_packets_dropped_total, with the reason given; M is
// --max-members, 1,024 at least.
//
//	what                  of one certificate             in all              beyond                       counter
//	memberlist's streams  8 open                         –                   closed                       too_many_streams
//	state exchanges       1 at a time, the others wait   states of 4 full    refused after 3 s            too_many_exchanges
//	states exchanged      4 M a minute and in one        exchanges           refused                      too_many_exchanges, too_many
//	one state             1 KiB, 512 bytes of metadata   –                   exchange ended, state left   message_format, metadata
//	states kept           each live instance once        M that do not live  left out                     too_many
//	instances             2                              2 × max-members     the oldest boot is          unproven_total superseded
//	                                                     nodes               displaced
//	boots                 30, and 60 a minute            –                   not admitted                 unproven_total too_many_boots
//	sessions of packets   2                              4 × max-members     the one unused for longest   too_many_sessions
//	                                                                         is displaced
//	notices of leaving    2                              2 × max-members     the oldest is forgotten      too_many
//	                                                     nodes
//	answers to questions  3 bytes for each of a          5,000 a second      not answered                 short_question, too_many
//	                      question
//	certificates          1 at a time for those that     live members        not requested                records_received_total
//	requested for         name it as their author                                                         unproven
//	statements
//	unknown members       --max-new-members a minute     max-members         not admitted                 too_many
const (
	// streamsPerNode are more than an honest member opens: it exchanges states for the periodic
	// comparison, for a join, and for a member that answered a nonce, and probes over streams.
	streamsPerNode = 8
	// exchangeWait is how long an exchange waits for its turn. memberlist gives up after 5 s.
	exchangeWait = 3 * time.Second
	// fullExchanges is how many exchanges of a whole fleet have room at the same time.
	fullExchanges = 4
	// announcedFactor times M is how many states an exchange may announce: memberlist keeps
	// instances that do not live for up to as many seconds as there are members.
	announcedFactor = 4
	// leastStates is the least M: a process that crashes repeatedly leaves many instances,
	// however small the fleet.
	leastStates = 1024
	// maxState is the size of a state with the longest name and metadata, and some more.
	maxState = 1 << 10

	// instancesPerNode: a restarted member, and its last boot until that is found dead.
	instancesPerNode = 2
	// bootsAtOnce and bootsAMinute allow a process that crashes repeatedly and is started again
	// after a second, as the systemd units do.
	bootsAtOnce  = 30
	bootsAMinute = 60
	// displacedFor is how long memberlist is asked to end a displaced instance.
	displacedFor = 30 * time.Second

	// sessionsPerCertificate is one for each of the two instances.
	sessionsPerCertificate = 2
	// leavesPerNode are the notices of the last two boots.
	leavesPerNode = 2

	// answersPerByte is how many bytes of answers one byte of a question pays for: the address
	// of a question may be forged, and a member must not multiply what is sent in its name.
	answersPerByte = 3
)

// exchanges bounds the streams that members open for memberlist. Its methods may be called from
// any goroutine.
type exchanges struct {
	ctx    context.Context // ends the waits
	states int             // M: of a full exchange
	own    func() int      // states that this node sends in each exchange
	room   *semaphore.Weighted

	mu    sync.Mutex
	nodes map[string]*exchanging // by id
}

// exchanging is what one certified node occupies.
type exchanging struct {
	streams int           // open
	turn    chan struct{} // capacity 1: holds a value while an exchange has its turn
	states  *rate.Limiter // announced
}

func newExchanges(ctx context.Context, members int, own func() int) *exchanges {
	states := max(members, leastStates)
	return &exchanges{ctx: ctx, states: states, own: own, room: semaphore.NewWeighted(int64(2 * fullExchanges * states)), nodes: make(map[string]*exchanging)}
}

// announced is how many states one exchange may announce.
func (x *exchanges) announced() int { return announcedFactor * x.states }

// place belongs to one open stream.
type place struct {
	all    *exchanges
	node   *exchanging
	turn   bool
	weight int64 // of the room
	closed bool
}

// open returns a place for a stream of a node, nil if the node has too many. Close ends it.
func (x *exchanges) open(id string) *place {
	x.mu.Lock()
	defer x.mu.Unlock()
	node := x.nodes[id]
	if node == nil {
		node = &exchanging{turn: make(chan struct{}, 1), states: rate.NewLimiter(rate.Limit(float64(x.announced())/60), x.announced())}
		x.nodes[id] = node
	}
	if node.streams >= streamsPerNode {
		return nil
	}
	node.streams++
	return &place{all: x, node: node}
}

// take waits until this exchange is the only one of its node and there is room for its states, in
// both directions. It reports false if that takes too long, or if the node has announced too many
// states. The turn and the room are held until the stream is closed: memberlist keeps what it has
// read until then. The room is last, so that a node that waits for its turn holds none of it.
func (p *place) take(states int) bool {
	ctx, cancel := context.WithTimeout(p.all.ctx, exchangeWait)
	defer cancel()
	select {
	case p.node.turn <- struct{}{}:
		p.turn = true
	case <-ctx.Done():
		return false
	}
	if !p.node.states.AllowN(time.Now(), states) {
		return false
	}
	weight := min(int64(states+p.all.own()), int64(2*fullExchanges*p.all.states))
	if p.all.room.Acquire(ctx, weight) != nil {
		return false
	}
	p.weight = weight
	return true
}

// close gives the place back. memberlist may close a stream twice, in one goroutine.
func (p *place) close() {
	if p == nil || p.closed {
		return
	}
	p.closed = true
	p.all.room.Release(p.weight)
	if p.turn {
		<-p.node.turn
	}
	p.all.mu.Lock()
	p.node.streams--
	p.all.mu.Unlock()
}

// sweep forgets nodes without streams whose states of the last minute do not count any more.
func (x *exchanges) sweep() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, node := range x.nodes {
		if node.streams == 0 && int(node.states.Tokens()) >= node.states.Burst() {
			delete(x.nodes, id)
		}
	}
}
