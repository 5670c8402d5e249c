package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"

	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// Errors that RoundTrip wraps, for errors.Is.
var (
	// ErrUnavailable: no relay is known or connected, or Run has ended. Another relay or a later
	// attempt may work; nothing was sent with the last attempt.
	ErrUnavailable = errors.New("no relay is available")
	// ErrOverloaded: every connection that may be opened carries as many requests as it can.
	ErrOverloaded = errors.New("the connections to relays are full")
)

// poolError is an error of the pool that a program can find by one of the errors above.
type poolError struct {
	error
	kind error
}

func (e poolError) Unwrap() []error { return []error{e.error, e.kind} }

// kindOf makes an error of the pool, which is internal, one that a program can find.
func kindOf(err error) error {
	switch {
	case errors.Is(err, relaypool.ErrNoPeers), errors.Is(err, relaypool.ErrUnavailable), errors.Is(err, relaypool.ErrClosed), errors.Is(err, errNoLookup):
		return poolError{err, ErrUnavailable}
	case errors.Is(err, relaypool.ErrExhausted):
		return poolError{err, ErrOverloaded}
	}
	return err
}

// errNoLookup: the seeds were not looked up in time.
var errNoLookup = errors.New("no lookup of relays: is Run running?")

// RoundTrip sends a request to a relay. If that relay does not answer and a retry is safe,
// RoundTrip sends the request to another relay. The error contains every attempt, and wraps
// [ErrUnavailable] or [ErrOverloaded] if no relay could be chosen, or the error of the context.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	t := trip{client: c, req: req}
	resp, err := t.run()
	if !t.handed && req.Body != nil {
		_ = req.Body.Close() // a RoundTripper must close the body; no connection has received it
	}
	return resp, err
}

// trip is one request with its attempts.
type trip struct {
	client *Client
	req    *http.Request
	key    string
	handed bool // the request's original body was passed to a connection
	tried  []string
	failed []error
}

func (t *trip) run() (*http.Response, error) {
	ctx, c := t.req.Context(), t.client
	select {
	case <-c.ready:
	default:
		if err := c.awaitRelays(ctx); err != nil {
			return nil, t.fail(err)
		}
	}
	if t.key = wire.KeyOf(ctx); t.key == "" {
		t.key = t.req.Header.Get(wire.KeyHeader)
	}
	c.budget.Earn()
	for {
		lease, err := c.pool.Acquire(ctx, relaypool.Request{Key: t.key, Exclude: t.tried})
		if errors.Is(err, relaypool.ErrExcluded) { // all relays were tried: try one again
			lease, err = c.pool.Acquire(ctx, relaypool.Request{Key: t.key})
		}
		if err != nil {
			return nil, t.fail(err)
		}
		resp, sent, err := t.attempt(lease)
		switch err {
		case nil:
			return resp, nil
		case errFull:
			continue
		}
		t.failed = append(t.failed, fmt.Errorf("relay %s: %w", lease.Peer().ID, err))
		if err != errRetired {
			t.tried = append(t.tried, lease.Peer().ID)
		}
		if ctx.Err() != nil {
			return nil, t.fail(context.Cause(ctx))
		}
		if why := t.mayNotRepeat(sent); why != "" {
			c.metrics.refused.WithLabelValues(why).Inc()
			return nil, t.fail(nil)
		}
		reason := retryFailed
		if !sent {
			reason = retryUnsent
		}
		c.metrics.retries.WithLabelValues(reason).Inc()
	}
}

// awaitRelays waits for the first lookup of the seeds.
func (c *Client) awaitRelays(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.pool.ConnectTimeout,
		fmt.Errorf("within %v: %w", c.cfg.pool.ConnectTimeout, errNoLookup))
	defer cancel()
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fail joins the errors of all attempts and err.
func (t *trip) fail(err error) error {
	return fmt.Errorf("client: %d attempts: %w", len(t.failed), errors.Join(append(t.failed, kindOf(err))...))
}

var (
	// errRetired: the relay takes no more requests on this connection.
	errRetired = errors.New("the connection takes no more requests")
	// errFull: the relay takes no more requests on this connection for now. This is no attempt.
	errFull = errors.New("the connection is full")
)

// attempt sends the request once. sent reports whether the relay may have received a part
// of it.
func (t *trip) attempt(lease *relaypool.Lease[*relayConn]) (_ *http.Response, sent bool, _ error) {
	conn, c := lease.Conn(), t.client
	// An HTTP/1.1 connection may still be finishing the last answer, and RoundTrip waits for that.
	begun := func() {}
	if !c.cfg.HTTP1 {
		if !conn.begin() {
			return nil, false, refused(lease)
		}
		begun = sync.OnceFunc(conn.begun)
	}
	defer begun()
	var wrote atomic.Bool
	ctx := httptrace.WithClientTrace(t.req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true); begun() },
	})
	out := t.req.Clone(ctx)
	out.URL.Scheme = c.scheme()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	if host := t.req.URL.Hostname(); out.Header.Get(wire.ServiceHeader) == "" && !strings.Contains(host, ".") {
		out.Header.Set(wire.ServiceHeader, host)
	}
	if t.key != "" {
		out.Header.Set(wire.KeyHeader, t.key)
	}
	if t.handed && hasBody(t.req) {
		body, err := t.req.GetBody()
		if err != nil {
			lease.Release()
			return nil, false, fmt.Errorf("read the body again: %w", err)
		}
		out.Body = body
	}
	t.handed = true
	resp, err := conn.RoundTrip(out)
	lease.Report(selection.Result{Outcome: t.outcome(resp, err)})
	if err != nil {
		lease.Release()
		return nil, wrote.Load() && !unsent(err), err
	}
	conn.learn(0)
	if limit := conn.limit.Load(); limit > 0 && conn.stated.CompareAndSwap(false, true) {
		lease.Allows(int(limit))
	}
	resp.Request = t.req
	resp.Body = hold(resp, lease)
	return resp, true, nil
}

// refused gives back the place on a connection that takes no request.
func refused(lease *relaypool.Lease[*relayConn]) error {
	conn := lease.Conn()
	if carries, full := conn.full(); full {
		conn.onRoom(lease.Full(carries))
		return errFull
	}
	conn.lost(errRetired)
	lease.Release()
	return errRetired
}

// unsent reports whether HTTP/2 guarantees that the relay did not process the request
// (RFC 9113, 8.7).
func unsent(err error) bool { return err.Error() == wire.GoAway || overLimit(err) }

// overLimit reports whether the relay refused a stream because it carries as many as it allows,
// which a connection does not know when it is new.
func overLimit(err error) bool {
	var stream http2.StreamError
	return errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream
}

func (t *trip) outcome(resp *http.Response, err error) selection.Outcome {
	switch {
	case errors.Is(t.req.Context().Err(), context.Canceled):
		return selection.Cancelled
	case err != nil && err.Error() == wire.GoAway: // an orderly shutdown is not a failure
		return selection.Cancelled
	case err != nil && overLimit(err):
		return selection.Shed
	case err != nil:
		return selection.Failure
	case resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests:
		return selection.Shed
	}
	return selection.Success
}

// mayNotRepeat returns why the request must not be retried, or "".
func (t *trip) mayNotRepeat(sent bool) string {
	switch {
	case t.handed && hasBody(t.req) && t.req.GetBody == nil, sent && !idempotent(t.req):
		return refusedUnsafe
	case len(t.failed) >= t.client.cfg.Attempts:
		return refusedAttempts
	case !t.client.budget.Spend():
		return refusedBudget
	}
	return ""
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// idempotent applies the rule of net/http, with the methods of RFC 9110.
func idempotent(r *http.Request) bool {
	if r.Method == "" || wire.Idempotent(r.Method) {
		return true
	}
	_, key := r.Header["Idempotency-Key"]
	_, xkey := r.Header["X-Idempotency-Key"]
	return key || xkey
}

// held is a response body that releases its place on the connection when it ends.
type held struct {
	io.ReadCloser
	lease *relaypool.Lease[*relayConn]
	ended atomic.Bool // Read and Close may come from two goroutines
}

func (b *held) end() {
	if !b.ended.Swap(true) {
		b.lease.Release()
	}
}

func (b *held) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *held) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// heldUpgrade is the body of an upgraded connection, which can also be written.
type heldUpgrade struct {
	*held
	io.Writer
}

func hold(resp *http.Response, lease *relaypool.Lease[*relayConn]) io.ReadCloser {
	b := &held{ReadCloser: resp.Body, lease: lease}
	if w, ok := resp.Body.(io.Writer); ok {
		return heldUpgrade{b, w}
	}
	if resp.Body == http.NoBody {
		b.end()
	}
	return b
}
