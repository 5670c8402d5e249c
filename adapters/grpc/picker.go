package ringwaygrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

// keyMetadata is the header of a relay's clients, as metadata.
const keyMetadata = "ringway-key"

// maxTried is how many endpoints without a connection an RPC passes over before it takes any with
// one. It is as many as a pick can exclude.
const maxTried = 8

// picker sends RPCs to the endpoints that the router picks.
type picker struct {
	router  Router
	service string
	byPlace map[place]*connection
	skipped error
}

// call is one attempt of an RPC. Calls are pooled with their callback, so that a pick allocates
// nothing.
type call struct {
	pick   router.Pick
	stream *stream // nil for a unary RPC
	done   func(balancer.DoneInfo)
}

var calls sync.Pool

func newCall() *call {
	if c, ok := calls.Get().(*call); ok {
		return c
	}
	c := &call{}
	c.done = c.end
	return c
}

func (c *call) free() {
	c.stream = nil // the pick is overwritten by the next
	calls.Put(c)
}

// end reports how the attempt went. grpc-go calls it once.
func (c *call) end(info balancer.DoneInfo) {
	outcome := outcomeOf(info, c.stream != nil)
	if c.stream != nil {
		c.stream.ended(c, outcome)
	} else {
		c.pick.Done(outcome)
	}
	c.free()
}

// Pick implements balancer.Picker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	v := valuesOf(info.Ctx)
	if v.key == "" {
		v.key = keyOf(info.Ctx)
	}
	c := newCall()
	var err error
	if c.pick, err = p.router.Pick(info.Ctx, p.service, v.key); err != nil {
		c.free()
		return balancer.PickResult{}, p.refused(info.Ctx, err)
	}
	to := p.byPlace[placeOf(c.pick.Endpoint())]
	if to == nil || to.is() != connectivity.Ready {
		if to, err = p.another(c, to); err != nil {
			c.free()
			return balancer.PickResult{}, err
		}
	}
	if v.stream != nil && v.stream.method == info.FullMethodName { // or it is a unary RPC with the context of a stream
		c.stream = v.stream
		v.stream.attempt(c)
	}
	return balancer.PickResult{SubConn: to.SubConn, Done: c.done, Metadata: to.metadata}, nil
}

// keyOf returns the key in the metadata, in the form that relays use.
func keyOf(ctx context.Context) string {
	if of := metadata.ValueFromOutgoingContext(ctx, keyMetadata); len(of) > 0 {
		return ingress.BoundedKey(of[0])
	}
	return ""
}

// refused returns the error of an RPC for which the router has no endpoint: a status ends every
// RPC, other errors end only those that do not wait.
func (p *picker) refused(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, selection.ErrFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return err
}

// another picks an endpoint with a connection in place of c.pick, which has none, and gives c.pick
// back if there is none. A failed dial is reported for each RPC that would have used it,
// until the endpoint is evicted.
func (p *picker) another(c *call, to *connection) (*connection, error) {
	for range maxTried {
		outcome := selection.Cancelled
		if to != nil && to.is() == connectivity.TransientFailure {
			outcome = selection.Failure
		}
		next, err := c.pick.Next(outcome)
		if err != nil {
			break // those that are left are full, or not for this RPC
		}
		c.pick = next
		if to = p.byPlace[placeOf(c.pick.Endpoint())]; to != nil && to.is() == connectivity.Ready {
			return to, nil
		}
	}
	full := false
	for _, to := range p.byPlace { // in random order
		if to.is() != connectivity.Ready {
			continue
		}
		next, err := c.pick.NextAt(to.endpoint.NodeID, selection.Cancelled)
		if err == nil {
			c.pick = next
			return to, nil
		}
		full = full || errors.Is(err, selection.ErrFull)
	}
	c.pick.Done(selection.Cancelled)
	if full { // it cannot wait: a slot that becomes free makes no RPC pick again
		return nil, status.Errorf(codes.ResourceExhausted, "service %s: every endpoint with a connection is full", p.service)
	}
	return nil, p.noConnection()
}

// noConnection returns the error of an RPC that waits while connections are opened, or fails
// because all dials failed.
func (p *picker) noConnection() error {
	var failed *connection
	for _, c := range p.byPlace {
		if c.is() != connectivity.TransientFailure {
			return balancer.ErrNoSubConnAvailable
		}
		failed = c
	}
	switch {
	case failed != nil: // not wrapped: a status inside would also end RPCs that wait
		return fmt.Errorf("service %s: none of %d endpoints accepts a connection, such as %s (%s): %v", p.service, len(p.byPlace), failed.endpoint.NodeID, failed.endpoint.Address, *failed.failed.Load())
	case p.skipped != nil:
		return fmt.Errorf("service %s: no endpoint can be called: %w", p.service, p.skipped)
	}
	return balancer.ErrNoSubConnAvailable // the endpoints are on their way from the router
}

// outcomeOf grades an attempt as a relay does.
func outcomeOf(info balancer.DoneInfo, streaming bool) selection.Outcome {
	if !info.BytesSent {
		// The connection had just ended, so grpc-go picks again, or the RPC failed in this process.
		return selection.Cancelled
	}
	code := status.Code(info.Err)
	switch {
	case code == codes.DeadlineExceeded && !info.BytesReceived:
		return selection.NoAnswer
	case code == codes.DeadlineExceeded && streaming: // many streams live until their deadline
		return selection.Cancelled
	}
	return ingress.CallOutcome(int(code))
}
