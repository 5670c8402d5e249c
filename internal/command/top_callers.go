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

// callers counts the records of a stream by caller. A goroutine reads the stream until
// close.
type callers struct {
	ended chan struct{}
	end   context.CancelFunc

	relay string
	api.Callers

	mu      sync.Mutex
	dropped uint64
	err     error // of the stream, once it has ended
}

// followCallers opens the stream of a service, or of all. The stream is open when it returns
// without an error.
func followCallers(ctx context.Context, call *adminCall, service string) (*callers, error) {
	path := "tap"
	if service != "" {
		path = "services/" + url.PathEscape(service) + "/tap"
	}
	ctx, end := context.WithCancel(ctx)
	c := &callers{ended: make(chan struct{}), end: end}
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
	if r.Dropped > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropped += uint64(r.Dropped)
		return nil
	}
	c.Add(&api.Call{Caller: r.Caller, From: r.From, Failed: r.failed(), FirstByteMs: r.FirstByte, TotalMs: r.Total})
	return nil
}

// next returns what was counted since the last call.
func (c *callers) next() (rows []api.TopRow, dropped uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dropped, c.dropped = c.dropped, 0
	return c.Next(), dropped, c.err
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
	doc := &TopDocument{Relay: t.callers.relay, By: t.by, WindowMs: t.at.Sub(began).Milliseconds(), Rows: rows, Dropped: dropped}
	t.finish(doc, t.at.Sub(began))
	return doc, nil
}
