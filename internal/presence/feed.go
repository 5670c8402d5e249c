package presence

import (
	"bufio"
	"context"
	"net"
	"time"

	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// feed is a stream on which this relay sends its list.
type feed struct {
	peer  string
	began time.Time
	end   context.CancelFunc
	fresh chan struct{} // capacity 1: the list has changed
	wants chan []instance
}

// maxFeeds bounds the streams, and maxFeedsOfPeer those of one member: the second replaces one whose end
// is not seen yet. Else one certificate could take all places, and the memory of as many lists.
const (
	maxFeeds       = 4096
	maxFeedsOfPeer = 2
)

// gather is how long changes are gathered before they are sent.
const gather = 10 * time.Millisecond

// enter takes a place for a stream. The oldest of its peer ends for it. It returns false if there is none.
func (f *Fleet) enter(one *feed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest *feed
	same := 0
	for other := range f.feeds {
		if other.peer == one.peer {
			if same++; oldest == nil || other.began.Before(oldest.began) {
				oldest = other
			}
		}
	}
	switch {
	case same >= maxFeedsOfPeer:
		f.metrics.failed.WithLabelValues(problemReplaced).Inc()
		oldest.end()
		delete(f.feeds, oldest)
	case len(f.feeds) >= maxFeeds:
		return false
	}
	f.feeds[one] = struct{}{}
	return true
}

// serve sends the list of this relay to another one.
func (f *Fleet) serve(ctx context.Context, peer membership.Peer, conn net.Conn) {
	if !peer.Role.Relays() && peer.Role != identity.RoleObserver {
		return // gossiping workers know no attached ones
	}
	ctx, cancel := context.WithCancel(ctx)
	one := &feed{peer: peer.ID, began: time.Now(), end: cancel, fresh: make(chan struct{}, 1), wants: make(chan []instance, 16)}
	if !f.enter(one) {
		cancel()
		f.metrics.failed.WithLabelValues(problemPlaces).Inc()
		f.logger.Debug("as many members read the list of attached workers as there are places for", "refused", peer.ID)
		return
	}
	defer func() {
		cancel()
		f.mu.Lock()
		delete(f.feeds, one)
		f.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		reader := bufio.NewReader(conn)
		for {
			_ = conn.SetReadDeadline(time.Now().Add(session.Silence))
			kind, payload, err := session.ReadFrame(reader, maxReaderFrame)
			if err != nil {
				return
			}
			if kind != kindWant {
				continue
			}
			wanted, err := decodeWant(payload)
			if err != nil {
				_ = f.malformed(err)
				return
			}
			select {
			case one.wants <- wanted:
			case <-ctx.Done():
				return
			}
		}
	}()
	f.send(ctx, conn, one)
	cancel()
	<-done
}

// send sends the list, its changes, and proofs.
func (f *Fleet) send(ctx context.Context, conn net.Conn, one *feed) {
	beat := time.NewTicker(session.BeatInterval)
	defer beat.Stop()
	var sent uint64
	began := false
	write := func(out []byte) bool {
		if len(out) == 0 {
			return true
		}
		_ = conn.SetWriteDeadline(time.Now().Add(session.Silence))
		_, err := conn.Write(out)
		return err == nil
	}
	for {
		f.mu.Lock()
		frames, kind := []change(nil), kindChange
		if began {
			frames, began = f.own.after(sent)
		}
		if !began {
			frames, kind, began = f.own.whole(), kindList, true
		}
		sent = f.own.sequence
		f.mu.Unlock()
		for _, c := range frames {
			if !write(session.AppendFrame(nil, kind, c.encode())) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-one.fresh:
			select { // changes come together: those of a worker that restarts, or of many
			case <-time.After(gather):
			case <-ctx.Done():
				return
			}
		case <-beat.C:
			f.mu.Lock()
			b := session.AppendFrame(nil, kindBeat, encodeBeat(f.own.sequence, f.own.hash))
			if f.own.sequence != sent {
				b = nil // the changes are on their way
			}
			f.mu.Unlock()
			if !write(b) {
				return
			}
		case wanted := <-one.wants:
			for _, i := range wanted {
				f.mu.Lock()
				p, there := f.proofs[i.id]
				f.mu.Unlock()
				if there && p.epoch == i.epoch && !write(session.AppendFrame(nil, kindProof, p.encode())) {
					return
				}
			}
		}
	}
}
