package xds

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

// silent are the streams whose first request has not arrived. There is always room for a new
// stream: over the bound the oldest stream of the source with the most streams ends, so a source
// with many cannot keep others out. An Envoy sends its first request with the stream.
type silent struct {
	mu      sync.Mutex
	streams []*silentStream // oldest first
	sources map[string]int
}

type silentStream struct {
	source    string
	displaced chan struct{} // closed when the stream has lost its place
}

func newSilent() *silent { return &silent{sources: map[string]int{}} }

// enter adds a stream of a source. The caller removes it with leave.
func (s *silent) enter(source string) *silentStream {
	one := &silentStream{source: source, displaced: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) >= maxSilent {
		gone := s.streams[0]
		for _, other := range s.streams {
			if s.sources[other.source] > s.sources[gone.source] {
				gone = other
			}
		}
		s.remove(gone)
		close(gone.displaced)
	}
	s.streams = append(s.streams, one)
	s.sources[source]++
	return one
}

// leave removes a stream. It reports whether the stream still had its place.
func (s *silent) leave(one *silentStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(one)
}

// remove is leave for a caller that holds the lock.
func (s *silent) remove(one *silentStream) bool {
	i := slices.Index(s.streams, one)
	if i < 0 {
		return false
	}
	s.streams = slices.Delete(s.streams, i, i+1)
	if s.sources[one.source]--; s.sources[one.source] == 0 {
		delete(s.sources, one.source)
	}
	return true
}

// intercept is the interceptor of all streams. It ends a stream that has lost its place.
func (f *clients) intercept(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	place := f.silent.enter(f.sourceOf(stream.Context()))
	defer f.silent.leave(place)
	err := handler(server, &speaking{ServerStream: stream, clients: f, place: place, pace: rate.NewLimiter(requestRate, requestBurst)})
	select {
	case <-place.displaced:
		return f.refuse(refusedStreams, codes.ResourceExhausted, "%d streams have not sent a request yet, and this one was the oldest of its source", maxSilent)
	default:
		return err
	}
}

// sourceOf returns the node of the certificate, or the IP address of a client without one.
func (f *clients) sourceOf(ctx context.Context) string {
	if claims, err := f.claimsOf(ctx); claims != nil && err == nil {
		return claims.Node
	}
	if from, ok := peer.FromContext(ctx); ok {
		if addr, err := netip.ParseAddrPort(from.Addr.String()); err == nil {
			return addr.Addr().Unmap().String()
		}
	}
	return ""
}

// speaking is a stream that gives back its place among the silent ones with its first request.
type speaking struct {
	grpc.ServerStream
	clients *clients
	place   *silentStream // nil after the first request
	pace    *rate.Limiter // of the requests after it
}

// RecvMsg implements grpc.ServerStream. A stream with too many requests is read slowly, so that its
// client waits. The goroutine for the first request ends with the stream
// at the latest.
func (s *speaking) RecvMsg(m any) error {
	if s.place == nil {
		if err := s.pace.Wait(s.Context()); err != nil {
			return err
		}
		return s.ServerStream.RecvMsg(m)
	}
	place := s.place
	s.place = nil
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-received:
		if s.clients.silent.leave(place) {
			return err
		}
	case <-place.displaced:
	}
	return context.Canceled // go-control-plane ends the stream after any error
}
