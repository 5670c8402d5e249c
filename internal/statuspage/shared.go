package statuspage

import (
	"context"
	"sync"
	"time"
)

// shared keeps the newest sections of each query while it has listeners, so the number of
// listeners bounds that of the drawings.
type shared struct {
	mu       sync.Mutex
	drawings map[query]*drawings
}

// drawings has the newest sections of one query.
type drawings struct {
	listeners int           // guarded by shared.mu
	turn      chan struct{} // holds the token of the one goroutine that draws
	newest    *drawn        // guarded by turn
}

// drawn is what listeners get until it is due.
type drawn struct {
	identity string
	sections map[string]string
	due      time.Time
}

// join adds a listener of a query until it calls leave.
func (s *shared) join(q query) (d *drawings, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d = s.drawings[q]; d == nil {
		d = &drawings{turn: make(chan struct{}, 1)}
		s.drawings[q] = d
	}
	d.listeners++
	return d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.listeners--; d.listeners == 0 {
			delete(s.drawings, q)
		}
	}
}

// sections returns the newest drawing, and draws if that is due. A listener that goes while it
// draws leaves nothing to the others, because its document may be incomplete.
func (h *handler) sections(ctx context.Context, d *drawings, q query) (*drawn, error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.turn }()
	if d.newest != nil && time.Now().Before(d.newest.due) {
		return d.newest, nil
	}
	began := time.Now()
	v := h.render(ctx, q)
	sections, err := v.drawSections()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	d.newest = &drawn{v.Identity(), sections, now.Add(max(h.cfg.Interval, restFactor*now.Sub(began)))}
	return d.newest, nil
}
