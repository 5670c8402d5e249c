package downstream

import (
	"context"
	"sync"
	"time"
)

// requestContext is the context of a connection's requests. It serves for the next one as
// long as it was never cancelled and no channel was asked for, which another goroutine may
// hold.
type requestContext struct {
	values context.Context // nil: none; set before each request

	mu   sync.Mutex // guards the fields below
	done chan struct{}
	err  error
}

func (*requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (x *requestContext) Value(key any) any {
	if x.values == nil {
		return nil
	}
	return x.values.Value(key)
}

func (x *requestContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done == nil {
		x.done = make(chan struct{})
		if x.err != nil {
			close(x.done)
		}
	}
	return x.done
}

func (x *requestContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

func (x *requestContext) cancel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return
	}
	x.err = context.Canceled
	if x.done != nil {
		close(x.done)
	}
}

// end ends the context if it was used. It reports whether the next request needs another.
func (x *requestContext) end() bool {
	x.mu.Lock()
	used := x.done != nil || x.err != nil
	x.mu.Unlock()
	if used {
		x.cancel()
	}
	return used
}
