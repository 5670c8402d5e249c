package advertise

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ringway/ringway/membership"
)

// StreamProtocol names the stream on which members compare and send records.
const StreamProtocol = "adsync/1"

// An exchange makes two members equal in three turns; an idle one ends after the
// first answer and costs some thirty bytes.
//
//	initiator                        responder
//	hello(root) ------------------->
//	            <------------------- same                     (done), or
//	            <------------------- buckets
//	list of differing buckets, end ->
//	            <------------------- records newer here, want, end
//	records wanted, end ----------->
//	            <------------------- end
//
// A fetch is the initiator's want, answered by records and end.

// Results of exchanges, as metric labels.
const (
	resultSame    = "same"
	resultSynced  = "synced"
	resultFetched = "fetched"
	resultBusy    = "busy"
	resultFailed  = "failed"
	resultHostile = "hostile"
)

var errBusy = errors.New("the member is busy with other exchanges")

func resultOf(err error) string {
	var bad *invalid
	switch {
	case errors.Is(err, errBusy):
		return resultBusy
	case errors.As(err, &bad):
		return resultHostile
	default:
		return resultFailed
	}
}

// connect opens a stream to a member and runs talk on it.
func (c *Catalogue) connect(ctx context.Context, id string, talk func(f *frames) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	conn, err := c.cfg.Gossip.OpenStream(ctx, id, StreamProtocol)
	if err != nil {
		return resultFailed, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	result, err := talk(newFrames(conn, c))
	if err != nil {
		result = resultOf(err)
	}
	return result, err
}

// sync is the initiator's side.
func (c *Catalogue) sync(ctx context.Context, f *frames) (string, error) {
	var root uint64
	var ours [buckets]uint64
	if err := c.ask(ctx, func() { root, ours = c.store.root, c.store.buckets }); err != nil {
		return "", err
	}
	if err := f.send(frameHello, wireHello{root}); err != nil {
		return "", err
	}
	kind, b, err := f.receive()
	switch {
	case err != nil:
		return "", err
	case kind == frameSame:
		return resultSame, nil
	case kind == frameBusy:
		return "", errBusy
	case kind != frameBuckets:
		return "", unexpected(kind)
	}
	theirs, err := decodeBuckets(b)
	if err != nil {
		return "", err
	}
	var differing bitmap
	for i := range ours {
		if ours[i] != theirs[i] {
			differing.set(i)
		}
	}
	var list []listed
	if err := c.ask(ctx, func() { list = c.store.list(differing) }); err != nil {
		return "", err
	}
	if err := f.sendList(differing, list); err != nil {
		return "", err
	}
	wanted, err := c.takeRecords(ctx, f)
	if err != nil {
		return "", err
	}
	if err := c.giveRecords(ctx, f, wanted); err != nil {
		return "", err
	}
	if kind, _, err := f.receive(); err != nil {
		return "", err
	} else if kind != frameEnd {
		return "", unexpected(kind)
	}
	return resultSynced, nil
}

// fetch asks for single records.
func (c *Catalogue) fetch(ctx context.Context, f *frames, wanted []instance) (string, error) {
	if err := f.sendWant(wanted); err != nil {
		return "", err
	}
	if _, err := c.takeRecords(ctx, f); err != nil {
		return "", err
	}
	return resultFetched, nil
}

// takeRecords merges what the other side sends until it ends its turn, and
// collects what it wants. A bad record is counted and the rest goes on.
func (c *Catalogue) takeRecords(ctx context.Context, f *frames) (wanted []instance, err error) {
	for {
		kind, b, err := f.receive()
		if err != nil {
			return nil, err
		}
		switch kind {
		case frameEnd:
			return wanted, nil
		case frameBusy:
			return nil, errBusy
		case frameWant:
			more, err := decodeWant(b)
			if err != nil {
				return nil, err
			}
			wanted = append(wanted, more...)
		case frameRecords:
			raws, err := decodeRecords(b)
			if err != nil {
				return nil, err
			}
			if err := c.ask(ctx, func() { c.mergeAll(raws) }); err != nil {
				return nil, err
			}
		default:
			return nil, unexpected(kind)
		}
	}
}

// giveRecords sends the wanted records that are here and ends the turn.
func (c *Catalogue) giveRecords(ctx context.Context, f *frames, wanted []instance) error {
	var raws [][]byte
	err := c.ask(ctx, func() {
		for _, i := range wanted {
			if e := c.store.entries[i]; e != nil {
				raws = append(raws, e.raw)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := f.sendRecords(raws); err != nil {
		return err
	}
	return f.send(frameEnd, nil)
}

// answer is the responder's side, from the frame that opened the exchange.
func (c *Catalogue) answer(ctx context.Context, f *frames, kind frameKind, b []byte) (string, error) {
	switch kind {
	case frameWant:
		wanted, err := decodeWant(b)
		if err != nil {
			return "", err
		}
		return resultFetched, c.giveRecords(ctx, f, wanted)
	case frameHello:
	default:
		return "", unexpected(kind)
	}
	theirs, err := decodeHello(b)
	if err != nil {
		return "", err
	}
	var root uint64
	var ours [buckets]uint64
	if err := c.ask(ctx, func() { root, ours = c.store.root, c.store.buckets }); err != nil {
		return "", err
	}
	if root == theirs {
		return resultSame, f.send(frameSame, nil)
	}
	if err := f.send(frameBuckets, wireBuckets{packHashes(ours)}); err != nil {
		return "", err
	}
	marked, list, err := receiveList(f)
	if err != nil {
		return "", err
	}
	var newer [][]byte
	var wanted []instance
	if err := c.ask(ctx, func() { newer, wanted = c.store.compare(marked, list) }); err != nil {
		return "", err
	}
	if err := f.sendRecords(newer); err != nil {
		return "", err
	}
	if err := f.sendWant(wanted); err != nil {
		return "", err
	}
	if err := f.send(frameEnd, nil); err != nil {
		return "", err
	}
	if _, err := c.takeRecords(ctx, f); err != nil {
		return "", err
	}
	return resultSynced, f.send(frameEnd, nil)
}

func receiveList(f *frames) (marked bitmap, list []listed, err error) {
	for {
		kind, b, err := f.receive()
		if err != nil {
			return marked, nil, err
		}
		switch kind {
		case frameEnd:
			return marked, list, nil
		case frameList:
			m, more, err := decodeList(b)
			if err != nil {
				return marked, nil, err
			}
			for i := range m {
				marked[i] |= m[i]
			}
			list = append(list, more...)
		default:
			return marked, nil, unexpected(kind)
		}
	}
}

// inbound admits the exchanges that others open.
type inbound struct {
	waiting atomic.Int32 // streams whose first frame has not come yet

	mu    sync.Mutex
	ctx   context.Context // nil while Run does not run
	peers map[string]struct{}
	open  sync.WaitGroup // added to under mu while ctx is set
}

// Bounds of inbound streams.
const (
	maxInbound = 2  // exchanges at once
	maxWaiting = 64 // streams that have yet to say what they want
)

// enter returns false while Run does not run.
func (in *inbound) enter() (context.Context, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ctx == nil {
		return nil, false
	}
	in.open.Add(1)
	return in.ctx, true
}

// start takes one of the places for a peer; false means busy.
func (in *inbound) start(peer string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, twice := in.peers[peer]; twice || len(in.peers) >= maxInbound {
		return false
	}
	in.peers[peer] = struct{}{}
	return true
}

func (in *inbound) finish(peer string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.peers, peer)
}

func (in *inbound) run(ctx context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ctx, in.peers = ctx, map[string]struct{}{}
}

// stop refuses new streams and waits for the open ones, whose connections the
// end of the context has closed.
func (in *inbound) stop() {
	in.mu.Lock()
	in.ctx = nil
	in.mu.Unlock()
	in.open.Wait()
}

// serve handles one inbound stream, on the goroutine of membership.
func (c *Catalogue) serve(_ context.Context, peer membership.Peer, conn net.Conn) {
	ctx, running := c.inbound.enter()
	if !running {
		return
	}
	defer c.inbound.open.Done()
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	result, err := c.respond(ctx, peer, newFrames(conn, c))
	if err != nil {
		result = resultOf(err)
	}
	c.metrics.exchanges.WithLabelValues("in", result).Inc()
	if result == resultHostile {
		c.logger.Warn("cut off a record exchange that broke the protocol", "peer", peer.ID, "addr", peer.Addr, "error", err)
	}
}

func (c *Catalogue) respond(ctx context.Context, peer membership.Peer, f *frames) (string, error) {
	if c.inbound.waiting.Add(1) > maxWaiting {
		c.inbound.waiting.Add(-1)
		return "", errBusy
	}
	kind, b, err := f.receive()
	c.inbound.waiting.Add(-1)
	if err != nil {
		return "", err
	}
	if !c.inbound.start(peer.ID) {
		return resultBusy, f.send(frameBusy, nil)
	}
	defer c.inbound.finish(peer.ID)
	return c.answer(ctx, f, kind, b)
}
