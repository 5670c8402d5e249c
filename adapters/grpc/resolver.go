package ringwaygrpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
)

const scheme = "ringway"

// reportAfter is how long calls wait for a router that is not ready, before they fail with its
// reason. It is as long as requests of a router wait by default.
const reportAfter = 30 * time.Second

// found is what the resolver passes to the balancer. It is an attribute and not a list of
// addresses, so that no other policy can use the endpoints without the router.
type found struct {
	router    Router
	service   string
	endpoints []*advertise.Endpoint
}

type foundKey struct{}

// resolverBuilder makes the resolvers of one ClientConn.
type resolverBuilder struct{ router Router }

// Scheme implements resolver.Builder.
func (resolverBuilder) Scheme() string { return scheme }

// Build starts the goroutine that follows the endpoints. Close ends it.
func (b resolverBuilder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	service := target.Endpoint()
	if err := affinity.ValidateService(service); err != nil {
		return nil, fmt.Errorf("ringwaygrpc: target %q: %w", target.String(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{cancel: cancel, done: make(chan struct{})}
	go f.run(ctx, cc, found{router: b.router, service: service})
	return f, nil
}

// follower is a resolver that reports every change of the endpoints.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (f *follower) run(ctx context.Context, cc resolver.ClientConn, of found) {
	defer close(f.done)
	for {
		again, err := waitReady(ctx, of.router)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		cc.ReportError(fmt.Errorf("ringwaygrpc: service %q: %w", of.service, err)) // without a report, calls would wait indefinitely
		if !again {
			return
		}
	}
	for {
		endpoints, changed := of.router.Endpoints(of.service)
		next := of
		next.endpoints = endpoints
		_ = cc.UpdateState(resolver.State{Attributes: attributes.New(foundKey{}, &next)}) // only another policy refuses it, and polling would not help
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// waitReady waits for a router until reportAfter has passed. After an error, again reports whether
// the router may still become ready: it has not ended.
func waitReady(ctx context.Context, r Router) (again bool, err error) {
	limited, cancel := context.WithTimeout(ctx, reportAfter)
	defer cancel()
	err = r.WaitReady(limited)
	return limited.Err() != nil, err
}

// ResolveNow does nothing: every change is reported.
func (*follower) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (f *follower) Close() {
	f.cancel()
	<-f.done
}
