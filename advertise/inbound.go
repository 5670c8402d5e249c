package advertise

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ringway/ringway/membership"
)

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
	_ = c.talk(ctx, c.newFrames(inward, peer, conn), c.respond) // accounted for there
}

// respond waits for the frame that opens an exchange and takes a place for it.
func (c *Catalogue) respond(ctx context.Context, f *frames) (string, error) {
	if c.inbound.waiting.Add(1) > maxWaiting {
		c.inbound.waiting.Add(-1)
		return "", errBusy
	}
	kind, b, err := f.receive(maxOpeningBytes)
	c.inbound.waiting.Add(-1)
	if err != nil {
		return "", err
	}
	if !c.inbound.start(f.peer.ID) {
		return resultBusy, f.send(ctx, frameBusy, nil)
	}
	defer c.inbound.finish(f.peer.ID)
	return c.answer(ctx, f, kind, b)
}
