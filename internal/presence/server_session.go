package presence

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/session"
)

// held is one session.
type held struct {
	conn   net.Conn
	source netip.Prefix
	of     listed
	fresh  chan struct{} // capacity 1: the row may have changed

	mu     sync.Mutex
	refuse *session.Refusal // why the relay ends it
}

func (h *held) notify() {
	publish.Notify(h.fresh)
}

// end lets the relay end the session.
func (h *held) end(why *session.Refusal) {
	h.mu.Lock()
	if h.refuse == nil {
		h.refuse = why
	}
	h.mu.Unlock()
	h.notify()
}

func (h *held) ends() *session.Refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuse
}

// enter takes a place for a session.
func (s *Server) enter(h *held) *session.Refusal {
	epoch, taken := s.fleet.epochOf(h.of.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.byID[h.of.id]
	for _, other := range same {
		epoch = max(epoch, other.of.epoch)
	}
	switch {
	case taken:
		return refusal(refusedTaken, "the id %s belongs to a member of another role: give the worker an --id of its own", h.of.id)
	case epoch > h.of.epoch:
		return &session.Refusal{Code: refusedSuperseded, Text: superseded(h.of.id, h.of.epoch, epoch)}
	case len(same) >= sessionsPerID:
		return refusal(refusedID, "worker %s has %d sessions with this relay", h.of.id, len(same))
	case s.sources[h.source] >= sessionsPerSource:
		return refusal(refusedSource, "%d sessions come from %s, as many as one source may have", sessionsPerSource, h.source)
	case len(s.held) >= s.fleet.cfg.MaxMembers:
		return refusal(refusedTotal, "%d sessions: raise --max-members on all members", len(s.held))
	}
	s.held[h] = struct{}{}
	s.byID[h.of.id] = append(same, h)
	s.sources[h.source]++
	s.gauge.Set(float64(len(s.held)))
	if s.closed { // Close did not see it
		_ = h.conn.Close()
	}
	return nil
}

// leave gives the place back, and takes the worker off the list unless a newer session of it is there.
func (s *Server) leave(h *held, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h)
	s.gauge.Set(float64(len(s.held)))
	if s.sources[h.source]--; s.sources[h.source] == 0 {
		delete(s.sources, h.source)
	}
	var others []*held
	for _, other := range s.byID[h.of.id] {
		if other != h {
			others = append(others, other)
		}
	}
	if s.byID[h.of.id] = others; len(others) == 0 {
		delete(s.byID, h.of.id)
	}
	for _, other := range others {
		if other.of.epoch == h.of.epoch && other.of.sequence > 0 {
			return // it lists the worker
		}
	}
	s.fleet.drop(h.of.instance, left)
}

// read takes records and states, until the session ends. left reports whether the worker leaves the
// fleet.
func (s *Server) read(ctx context.Context, h *held, reader *bufio.Reader) (left bool, err error) {
	frames := rate.NewLimiter(framesPerMinute/60., framesBurst)
	_ = h.conn.SetReadDeadline(time.Now().Add(recordTimeout))
	for {
		first := h.of.sequence == 0 // only this goroutine changes it
		if !first {
			_ = h.conn.SetReadDeadline(time.Now().Add(session.Silence))
		}
		kind, payload, err := session.ReadFrame(reader, maxWorkerFrame)
		switch {
		case first && errors.Is(err, os.ErrDeadlineExceeded):
			return false, refusal(refusedTimeout, "worker %s has sent no record for %v", h.of.id, recordTimeout)
		case err != nil:
			return false, err
		case !frames.Allow():
			return false, refusal(refusedFlood, "worker %s sends more than %d frames a minute", h.of.id, framesPerMinute)
		}
		switch kind {
		case session.KindBeat:
		case session.KindState:
			if len(payload) == 0 {
				return false, refusal(refusedMalformed, "a state without flags")
			}
			if why := s.update(h, func(w *listed) { w.draining = payload[0]&session.FlagDraining != 0 }, nil); why != nil {
				return false, why
			}
		case session.KindRecord:
			sequence, err := s.fleet.takeRecord(ctx, h.of.instance, payload)
			if err != nil {
				return false, refusal(refusedRecord, "record of worker %s: %v", h.of.id, err)
			}
			if why := s.update(h, func(w *listed) { w.sequence = max(w.sequence, sequence) }, payload); why != nil {
				return false, why
			}
		case session.KindLeave:
			return true, nil
		case session.KindMoved:
			return false, nil
		default: // of a later release
		}
	}
}

// update changes what is listed of a worker. It is listed from its first record on. Frames of an
// earlier life that are read after the first record of a later one change nothing.
func (s *Server) update(h *held, change func(*listed), record []byte) *session.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.byID[h.of.id] {
		if other.of.epoch > h.of.epoch && other.of.sequence > 0 {
			return &session.Refusal{Code: refusedSuperseded, Text: superseded(h.of.id, h.of.epoch, other.of.epoch)}
		}
	}
	first := h.of.sequence == 0
	change(&h.of)
	if h.of.sequence == 0 {
		return nil
	}
	p := proof{instance: h.of.instance, record: record}
	if secured, ok := h.conn.(*tls.Conn); ok {
		for _, c := range secured.ConnectionState().PeerCertificates {
			p.chain = append(p.chain, c.Raw)
		}
	}
	if record == nil {
		p.record = s.fleet.recordOf(h.of.instance)
	}
	s.fleet.put(h.of, p)
	if first { // it replaces those that began before it
		for _, other := range s.byID[h.of.id] {
			if other == h {
				break
			}
			_ = other.conn.Close()
		}
	}
	return nil
}

// write sends rows and beats.
func (s *Server) write(ctx context.Context, h *held) {
	beat := time.NewTicker(session.BeatInterval)
	defer beat.Stop()
	row := session.Row{Self: s.fleet.cfg.ID, Epoch: s.fleet.Epoch()}
	for {
		var out []byte
		if why := h.ends(); why != nil {
			out = session.AppendFrame(nil, session.KindRefused, why.Encode())
			_ = h.conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = h.conn.Write(out)
			return
		}
		size := s.cfg.RowSize()
		if relays := s.row(h.of.id, size+spareRelays); row.Version == 0 || size != row.Size || !slices.Equal(relays, row.Relays) {
			row.Version, row.Size, row.Relays = row.Version+1, size, relays
			out = session.AppendFrame(nil, session.KindRow, row.Encode())
		}
		if len(out) > 0 {
			_ = h.conn.SetWriteDeadline(time.Now().Add(session.Silence))
			if _, err := h.conn.Write(out); err != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-h.fresh:
		case <-beat.C:
			_ = h.conn.SetWriteDeadline(time.Now().Add(session.Silence))
			if _, err := h.conn.Write(session.AppendFrame(nil, session.KindBeat, nil)); err != nil {
				return
			}
		}
	}
}
