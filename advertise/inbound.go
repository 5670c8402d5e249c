package advertise

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/membership"
)

// inbound admits the exchanges that other members open. A stream first waits among the silent ones,
// and takes one of the few places only when its first frame has arrived: a stream that sends
// nothing keeps no exchange out.
type inbound struct {
	mu     sync.Mutex
	ctx    context.Context      // nil while Run is not running
	peers  map[string]time.Time // when the exchange of a peer began
	rests  map[string]time.Time // until when a peer whose exchange took long has no place
	silent handshake.Silent     // streams whose first frame has not arrived yet
	open   sync.WaitGroup       // increased only with mu held and ctx set
}

// Limits of inbound streams. A member opens one exchange with another at a time.
const (
	maxInbound = 2 // simultaneous exchanges
	// restFactor times as long as an exchange took its peer has no place, so that one holds at most a
	// quarter of one in the long run: two members cannot hold both places all the time. An exchange of
	// less than restAfter, as nearly all are, has no rest.
	restFactor = 3
	restAfter  = time.Second
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
	now := time.Now()
	for id, until := range in.rests { // a few: each has held a place for seconds
		if !until.After(now) {
			delete(in.rests, id)
		}
	}
	_, twice := in.peers[peer]
	_, rests := in.rests[peer]
	if twice || rests || len(in.peers) >= maxInbound {
		return false
	}
	in.peers[peer] = now
	return true
}

func (in *inbound) finish(peer string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := time.Now()
	if took := now.Sub(in.peers[peer]); took >= restAfter {
		in.rests[peer] = now.Add(restFactor * took)
	}
	delete(in.peers, peer)
}

func (in *inbound) run(ctx context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ctx, in.peers, in.rests = ctx, map[string]time.Time{}, map[string]time.Time{}
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

// respond waits for the first frame of an exchange, takes a place and answers. The first frame is
// at most maxOpeningBytes, so that the silent streams together take little memory.
func (c *Catalogue) respond(ctx context.Context, f *frames) (string, error) {
	c.inbound.silent.Await(f.peer.ID, f.conn)
	kind, b, err := f.receive(maxOpeningBytes)
	// Without its place the stream is closed already, even if its frame has just arrived.
	if !c.inbound.silent.Heard(f.conn) {
		return "", refuse("silent", "sent nothing while its peer opened more streams than it may, or members more than %d", handshake.MaxSilent)
	}
	if err != nil {
		return "", err
	}
	if !c.inbound.start(f.peer.ID) {
		return resultBusy, f.send(ctx, frameBusy, nil)
	}
	defer c.inbound.finish(f.peer.ID)
	return c.answer(ctx, f, kind, b)
}
