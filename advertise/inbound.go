package advertise

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ringway/ringway/membership"
)

// inbound admits the exchanges that other members open.
type inbound struct {
	waiting atomic.Int32 // streams whose first frame has not arrived yet

	mu    sync.Mutex
	ctx   context.Context // nil while Run is not running
	peers map[string]struct{}
	open  sync.WaitGroup // increased only with mu held and ctx set
}

// Limits of inbound streams.
const (
	maxInbound = 2  // simultaneous exchanges
	maxWaiting = 64 // streams whose first frame has not arrived yet
)

// enter registers a stream; it returns false while Run is not running.
func (in *inbound) enter() (context.Context, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ctx == nil {
		return nil, false
	}
	in.open.Add(1)
	return in.ctx, true
}

// start takes a place for an exchange with a peer; false means busy.
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

// stop refuses new streams and waits for the open ones. Their connections are already
// closed, because the context has ended.
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
	_ = c.runExchange(ctx, c.newFrames(inward, peer, conn), c.respond) // runExchange counts and logs the error
}

// respond waits for the first frame of an exchange, takes a place and answers.
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
