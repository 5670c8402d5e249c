package presence

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// settleTime is how long a relay that starts waits for the list of another one.
	settleTime = 3 * time.Second
	// listLife is how long a list counts without a stream from its relay, which still lives, while other
	// relays are heard; and aloneLife, while none is: then this relay may be the one that is cut off, and
	// gossip takes up to a minute to find that out.
	listLife, aloneLife = 15 * time.Second, 3 * time.Minute
	// heardLately is longer than the beats of a relay that is heard are apart, and shorter than the time
	// that all have been silent when the first list of a relay that is cut off reaches listLife.
	heardLately = (session.BeatInterval + session.Silence) / 2
	// firstPause and longestPause are between two attempts to open a stream.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// olderPause is after a relay that does not know this protocol, perhaps of an earlier release.
	olderPause  = 20 * time.Second
	openTimeout = 5 * time.Second
)

// foreign is the list of another relay.
type foreign struct {
	list
	epoch   uint64    // of the life of the relay
	began   time.Time // when the relay was first seen
	heard   time.Time // when it sent its list or a beat last
	settled bool      // the list is here, or the relay does not have one
	wants   chan []instance
	end     context.CancelFunc
}

// want asks the relay for proofs. mu is held.
func (l *foreign) want(wanted []instance) {
	select {
	case l.wants <- wanted:
	default: // asked again later
	}
}

// follow opens streams to relays that have appeared and forgets the lists of those that are gone.
func (f *Fleet) follow(ctx context.Context, s *membership.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, l := range f.lists {
		m, alive := s.Get(id)
		if alive && m.Role == identity.RoleRelay && m.Epoch == l.epoch {
			continue
		}
		if !alive && s.Degraded() {
			continue // this member may be the one that is cut off
		}
		l.end()
		f.changedAll(&l.list)
		delete(f.lists, id)
		f.notify()
	}
	for _, m := range s.WithRole(identity.RoleRelay) {
		if m.ID == f.cfg.ID || f.lists[m.ID] != nil {
			continue
		}
		l := &foreign{list: *newList(), epoch: m.Epoch, began: time.Now(), wants: make(chan []instance, 16)}
		reading, end := context.WithCancel(ctx)
		l.end = end
		f.lists[m.ID] = l
		f.running.Go(func() { f.keepReading(reading, m.ID, l) })
	}
}

// keepReading reads the list of a relay until that life of it is gone.
func (f *Fleet) keepReading(ctx context.Context, id string, l *foreign) {
	failures := 0
	for {
		started := time.Now()
		err := f.read(ctx, id, l)
		if ctx.Err() != nil {
			return
		}
		pause := min(longestPause, firstPause<<min(failures, 10))
		failures++
		if time.Since(started) > longestPause {
			failures, pause = 0, firstPause
		}
		var refused *membership.RefusalError
		if errors.As(err, &refused) {
			pause = olderPause
			f.settle(l)
		}
		f.metrics.failed.WithLabelValues(problemStream).Inc()
		f.logger.Debug("the stream of attached workers from a relay ended", "relay", id, "err", err)
		f.expire(l, f.Node.Snapshot(), started)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// settle records that there is nothing to wait for.
func (f *Fleet) settle(l *foreign) {
	f.mu.Lock()
	l.settled = true
	f.mu.Unlock()
	f.notify()
}

// expire empties a list that had not been confirmed for too long when the attempt began that has failed to
// read it again.
func (f *Fleet) expire(l *foreign, s *membership.Snapshot, began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	life := aloneLife
	for _, other := range f.lists {
		if time.Since(other.heard) < heardLately {
			life = listLife
		}
	}
	if len(l.workers) > 0 && began.Sub(l.heard) > life && s != nil && !s.Degraded() {
		f.changedAll(&l.list)
		l.list = *newList()
		f.notify()
	}
}

// read reads the list of a relay from one stream.
func (f *Fleet) read(ctx context.Context, id string, l *foreign) error {
	dial, cancel := context.WithTimeout(ctx, openTimeout)
	conn, err := f.Node.OpenStream(dial, id, protocol)
	cancel()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	f.running.Go(func() {
		f.ask(ctx, conn, l)
		_ = conn.Close()
	})
	next, reader, whole := newList(), bufio.NewReader(conn), false
	for {
		_ = conn.SetReadDeadline(time.Now().Add(session.Silence))
		kind, payload, err := session.ReadFrame(reader, maxOwnerFrame)
		if err != nil {
			return err
		}
		switch kind {
		case kindList:
			c, err := decodeChange(payload)
			if err != nil {
				return f.malformed(err)
			}
			if len(next.workers)+len(c.listed) > f.cfg.MaxMembers {
				return f.malformed(errors.New("it lists more workers than --max-members allows"))
			}
			for _, w := range c.listed {
				next.put(w)
			}
			if next.sequence = c.sequence; c.more {
				continue
			}
			f.mu.Lock()
			f.changedAll(&l.list)
			f.changedAll(next)
			l.list, l.settled, l.heard, whole = *next, true, time.Now(), true
			f.mu.Unlock()
			next = newList()
			f.notify()
		case kindChange:
			c, err := decodeChange(payload)
			if err != nil || !whole {
				return f.malformed(errors.Join(err, errors.New("a change without a list")))
			}
			if err := f.apply(l, c); err != nil {
				return err
			}
		case kindBeat:
			sequence, hash, err := decodeBeat(payload)
			if err != nil {
				return f.malformed(err)
			}
			f.mu.Lock()
			l.heard = time.Now()
			differs := sequence == l.sequence && hash != l.hash
			f.mu.Unlock()
			if differs {
				f.metrics.failed.WithLabelValues(problemHash).Inc()
				return errors.New("the list differs from that of its relay")
			}
		case kindProof:
			p, err := decodeProof(payload)
			if err != nil {
				return f.malformed(err)
			}
			f.prove(ctx, id, p)
		default: // of a later release
		}
	}
}

func (f *Fleet) malformed(err error) error {
	f.metrics.failed.WithLabelValues(problemMalformed).Inc()
	return err
}

// apply changes a list.
func (f *Fleet) apply(l *foreign, c change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.sequence <= l.sequence || c.sequence-l.sequence > listedPerFrame {
		f.metrics.failed.WithLabelValues(problemGap).Inc()
		return errors.New("a change is missing")
	}
	l.sequence, l.heard = c.sequence, time.Now()
	for _, g := range c.gone {
		if g.left {
			f.left[g.instance] = struct{}{}
		}
		l.drop(g.instance)
		f.changed(g.id)
	}
	for _, w := range c.listed {
		l.put(w)
		f.changed(w.id)
	}
	if len(l.workers) > f.cfg.MaxMembers {
		return errors.New("it lists more workers than --max-members allows")
	}
	f.notify()
	return nil
}

// ask sends what is wanted, and beats.
func (f *Fleet) ask(ctx context.Context, conn net.Conn, l *foreign) {
	beat := time.NewTicker(session.BeatInterval)
	defer beat.Stop()
	for {
		var out []byte
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			out = session.AppendFrame(nil, kindAlive, nil)
		case wanted := <-l.wants:
			for len(wanted) > 0 {
				n := min(len(wanted), wantedPerFrame)
				out = session.AppendFrame(out, kindWant, encodeWant(wanted[:n]))
				wanted = wanted[n:]
			}
		}
		_ = conn.SetWriteDeadline(time.Now().Add(session.Silence))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// prove takes the certificate and the record of a worker that another relay lists.
func (f *Fleet) prove(ctx context.Context, relay string, p proof) {
	if _, err := f.learn(p.id, p.chain); err != nil {
		f.metrics.failed.WithLabelValues(problemCertificate).Inc()
		f.logger.Debug("the certificate of an attached worker is refused", "worker", p.id, "listed_by", relay, "err", err)
		return
	}
	if _, err := f.takeRecord(ctx, p.instance, p.record); err != nil && ctx.Err() == nil {
		f.metrics.failed.WithLabelValues(problemRecord).Inc()
		f.logger.Debug("the record of an attached worker is refused", "worker", p.id, "listed_by", relay, "err", err)
		return
	}
	f.notify()
}

// proveOwn passes proofs of the own list to the catalogue once more. mu is held.
func (f *Fleet) proveOwn(ctx context.Context, wanted []instance) {
	var proofs []proof
	for _, i := range wanted {
		if p := f.proofs[i.id]; p.epoch == i.epoch {
			proofs = append(proofs, p)
		}
	}
	if len(proofs) > 0 {
		f.running.Go(func() {
			for _, p := range proofs {
				f.prove(ctx, f.cfg.ID, p)
			}
		})
	}
}
