package ringwaygrpc

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ringway/ringway/selection"
)

// stream reports when the answer to a streaming RPC begins. Without it the length of the stream
// would count as the latency of its endpoint.
type stream struct {
	grpc.ClientStream
	method string
	began  atomic.Bool

	mu   sync.Mutex // the program receives while grpc-go may end the attempt
	call *call      // the last attempt, nil when it has ended
}

// watchAnswer is the interceptor of streaming RPCs.
func watchAnswer(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	v := valuesOf(ctx)
	s := &stream{method: method}
	v.stream = s
	var err error
	s.ClientStream, err = streamer(context.WithValue(ctx, valuesKey{}, &v), desc, cc, method, options...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.answered()
	}
	return err
}

// Header implements grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	if err == nil && header != nil {
		s.answered()
	}
	return header, err
}

func (s *stream) answered() {
	if s.began.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != nil {
		s.call.pick.Answered(selection.Success)
	}
	s.began.Store(true)
}

// attempt makes c the attempt whose answer the program receives.
func (s *stream) attempt(c *call) {
	s.mu.Lock()
	s.call = c
	s.mu.Unlock()
}

// ended gives back the pick of an attempt.
func (s *stream) ended(c *call, outcome selection.Outcome) {
	s.mu.Lock()
	if s.call == c {
		s.call = nil
	}
	c.pick.Done(outcome)
	s.mu.Unlock()
}
