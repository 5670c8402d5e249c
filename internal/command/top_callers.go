package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/api"
)

// mostCallers bounds the rows of a window: clients choose their addresses. The requests of
// more callers are counted together.
const (
	mostCallers  = 10_000
	otherCallers = "(others)"
)

// callerBounds are the bounds of the histogram of a caller, in milliseconds.
var callerBounds = [...]float64{.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000}

// callers counts the records of a stream by caller. A goroutine reads the stream until
// close.
type callers struct {
	ended chan struct{}
	end   context.CancelFunc

	mu      sync.Mutex
	relay   string
	rows    map[string]*callerRow
	dropped uint64
	err     error // of the stream, once it has ended
}

type callerRow struct {
	requests, errors uint64
	within           [len(callerBounds)]uint64
}

// followCallers opens the stream of a service, or of all. The stream is open when it returns
// without an error.
func followCallers(ctx context.Context, call *adminCall, service string) (*callers, error) {
	path := "tap"
	if service != "" {
		path = "services/" + url.PathEscape(service) + "/tap"
	}
	ctx, end := context.WithCancel(ctx)
	c := &callers{ended: make(chan struct{}), end: end, rows: map[string]*callerRow{}}
	open := make(chan struct{})
	go func() {
		defer close(c.ended)
		err := call.followFrom(ctx, path, follower{
			check: func(relay string) error { c.relay = relay; close(open); return nil },
			take:  c.take,
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}()
	select {
	case <-open:
		return c, nil
	case <-c.ended:
		end()
		return nil, c.err
	}
}

func (c *callers) close() {
	c.end()
	<-c.ended
}

// take counts a record.
func (c *callers) take(line []byte) error {
	var r tapped
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("the relay sent a line that is no record: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Dropped > 0 {
		c.dropped += uint64(r.Dropped)
		return nil
	}
	name := r.Caller
	switch {
	case name != "":
	case r.From != "":
		name = "(by " + r.From + ")"
	default:
		name = "(unknown)"
	}
	row := c.rows[name]
	if row == nil {
		if len(c.rows) >= mostCallers {
			name = otherCallers
		}
		if row = c.rows[name]; row == nil {
			row = &callerRow{}
			c.rows[name] = row
		}
	}
	row.requests++
	if r.failed() {
		row.errors++
	}
	took := r.FirstByte
	if took == 0 {
		took = r.Total
	}
	for i, bound := range callerBounds {
		if took <= bound {
			row.within[i]++
		}
	}
	return nil
}

// next returns what was counted since the last call.
func (c *callers) next() (rows map[string]*callerRow, dropped uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows, dropped = c.rows, c.dropped
	c.rows, c.dropped = map[string]*callerRow{}, 0
	return rows, dropped, c.err
}

// nextCallers returns the next window by caller.
func (t *top) nextCallers(ctx context.Context) (*TopDocument, error) {
	if t.callers == nil {
		var err error
		if t.callers, err = followCallers(ctx, t.call, t.service); err != nil {
			return nil, err
		}
		t.at = time.Now()
	}
	if err := t.wait(ctx); err != nil {
		return nil, err
	}
	began := t.at
	rows, dropped, err := t.callers.next()
	if err != nil {
		t.callers.close()
		t.callers = nil
		return nil, err
	}
	t.at = time.Now()
	doc := &TopDocument{Relay: t.callers.relay, By: t.by, WindowMs: t.at.Sub(began).Milliseconds(), Rows: []TopRow{}, Dropped: dropped}
	for name, r := range rows {
		h := histogram{total: r.requests}
		for i, bound := range callerBounds {
			h.buckets = append(h.buckets, api.LatencyBucket{UpToMs: bound, Requests: r.within[i]})
		}
		doc.Rows = append(doc.Rows, TopRow{Name: name, Requests: r.requests, Errors: r.errors, P50Ms: h.quantile(0.5), P99Ms: h.quantile(0.99)})
	}
	t.finish(doc, t.at.Sub(began))
	return doc, nil
}
