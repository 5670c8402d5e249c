package upstream

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// interruptible is a client whose body never comes: a read ends when the deadline
// is set, which the test holds up.
type interruptible struct {
	http.ResponseWriter
	reading, setting, proceed, over chan struct{}
	mu                              sync.Mutex
	deadlines                       int
}

func (c *interruptible) Read([]byte) (int, error) {
	close(c.reading)
	<-c.over
	return 0, io.ErrUnexpectedEOF
}

func (c *interruptible) Close() error { return nil }

func (c *interruptible) SetReadDeadline(time.Time) error {
	c.mu.Lock()
	c.deadlines++
	first := c.deadlines == 1
	c.mu.Unlock()
	if first {
		close(c.setting)
		<-c.proceed
		close(c.over)
	}
	return nil
}

// The HTTP/2 transport closes a body whenever it hears that nobody wants the rest,
// also while Carry does.
func TestABodyIsStoppedOnceAndNobodyTouchesTheClientAfterwards(t *testing.T) {
	c := &interruptible{reading: make(chan struct{}), setting: make(chan struct{}), proceed: make(chan struct{}), over: make(chan struct{})}
	b := &clientBody{body: c, w: c, length: noLength}
	var all sync.WaitGroup
	all.Go(func() { _, _ = b.Read(make([]byte, 1)) })
	<-c.reading
	all.Go(b.stop)
	<-c.setting
	late := make(chan struct{})
	all.Go(func() {
		close(late)
		_ = b.Close()
	})
	<-late
	close(c.proceed)
	all.Wait()
	b.stop()
	if c.deadlines != 2 { // one to interrupt, one for the rest of the body
		t.Errorf("the client's connection was touched %d times", c.deadlines)
	}
	if err := b.failure(); err != nil {
		t.Errorf("the client is blamed for the interruption: %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); err != errBodyStopped {
		t.Errorf("a read after the end: %v", err)
	}
}

// The last byte may come while a read is being interrupted. net/http then cancels
// the request, although the client waits for its answer.
func TestARequestThatIsCancelledByItsInterruptionGoesOn(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			request, leave := context.WithCancel(t.Context())
			b := &clientBody{}
			ctx, cancel := b.apart(request)
			b.cut.Store(interrupted)
			leave()
			synctest.Wait()
			if goesOn := ctx.Err() == nil; goesOn != interrupted {
				t.Errorf("interrupted %t: the exchange goes on: %t", interrupted, goesOn)
			}
			cancel()
			if ctx.Err() == nil {
				t.Error("not cancelled at its end")
			}
		})
	}
}
