package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// Pick is the endpoint for one request of a program that carries its requests itself. The
// program reports with Done what happened. A Pick is not safe for concurrent use, and must not
// be copied after its first method call.
type Pick struct {
	router  *Router
	service *routing.Service
	picked  selection.Pick[*routing.Target]
	key     string
	tried   *routing.Tried // nil until Next
	load    int            // that the endpoint reported
	hasLoad bool
	done    bool
}

// Pick chooses an endpoint of a service by the service's strategy, and counts a request as begun
// there. Only strategies by key use the key. It allocates nothing. The error is an [*Error]: with
// ErrElsewhere this relay does not serve the service, and RoundTrip would ask one that does.
func (r *Router) Pick(ctx context.Context, service, key string) (Pick, error) {
	if err := r.await(ctx, service); err != nil {
		return Pick{}, err
	}
	s, known := r.routes.Service(service)
	if !known {
		return Pick{}, &Error{Service: service, Code: string(wire.CodeUnknownService), Text: "no worker offers or recently offered it: compare its name with --service of its workers"}
	}
	tried := nothingTried.Get().(*routing.Tried)
	defer nothingTried.Put(tried)
	return r.pick(Pick{router: r, service: s, key: key}, tried)
}

// Endpoints returns the endpoints among which Pick chooses for a service, so that a program can
// connect before it sends, and a channel that is closed when they may have changed: then call
// it again. A draining endpoint is not among them, though a Pick from before may still be in
// flight there. There are none while the service is not known, or if other relays serve it. A
// call never waits for the router to be ready. The slice is the caller's, an endpoint is not:
// one that changes is another pointer, and a worker that restarts has another Epoch.
//
//	for {
//		endpoints, changed := r.Endpoints("billing")
//		connect(endpoints)
//		select {
//		case <-changed:
//		case <-ctx.Done(): // after Run has returned, nothing changes
//			return
//		}
//	}
func (r *Router) Endpoints(service string) (endpoints []*advertise.Endpoint, changed <-chan struct{}) {
	return r.routes.Endpoints(service)
}

// nothingTried holds values that stay empty, because a pick records nothing in them.
var nothingTried = sync.Pool{New: func() any { return new(routing.Tried) }}

func (r *Router) pick(p Pick, tried *routing.Tried) (Pick, error) {
	picked, err := p.service.Pick(p.key, r.now(), tried)
	if err != nil {
		// While a service moves here, its endpoints come just before its route.
		picked, err = p.service.Pick(p.key, r.now(), tried)
	}
	switch {
	case err == nil:
	case p.service.Route().Affine():
		return Pick{}, p.failed(err)
	default:
		return Pick{}, p.servedByOthers(err)
	}
	p.picked = picked
	r.inFlight.Add(1)
	return p, nil
}

func (p *Pick) failed(err error) error {
	code := wire.CodeNoEndpoint
	if errors.Is(err, selection.ErrFull) {
		code = wire.CodeOverloaded
	}
	return &Error{Service: p.service.Name, Code: string(code), Text: err.Error()}
}

// servedByOthers returns the error for a service that has no endpoint here, because other relays
// serve it or none can.
func (p *Pick) servedByOthers(err error) error {
	var relays []string
	for _, relay := range p.service.Route().Forward {
		relays = append(relays, relay.ID+" ("+relay.Address+")")
	}
	if len(relays) == 0 {
		return p.failed(err)
	}
	return &Error{Service: p.service.Name, Code: codeElsewhere, Text: fmt.Sprintf("%s does not serve it, RoundTrip forwards to those that do: %s", p.router.member.ID, strings.Join(relays, ", "))}
}

// Address returns the IP:port or host:port of the endpoint.
func (p *Pick) Address() string { return p.target().Address }

// Endpoint returns what the worker offers: its protocol, version and tags, and whether it
// requires mutual TLS.
func (p *Pick) Endpoint() *advertise.Endpoint { return p.target().Endpoint }

func (p *Pick) target() *routing.Target { return p.picked.Value() }

// SetLoad passes on how many requests the endpoint reported in flight, without this one. Answered
// or Done records it, so call SetLoad before.
func (p *Pick) SetLoad(inFlight int) { p.load, p.hasLoad = inFlight, true }

func (p *Pick) result(outcome selection.Outcome) selection.Result {
	return selection.Result{Outcome: outcome, Load: p.load, HasLoad: p.hasLoad}
}

// Answered reports that the response begins, and how. The time until then is the latency of the
// endpoint, so a long response calls it and then Done; a short one calls only Done.
func (p *Pick) Answered(outcome selection.Outcome) {
	if !p.done {
		p.picked = p.service.Endpoints.Answered(p.picked, p.router.now(), p.result(outcome))
	}
}

// Done gives the pick back and reports the outcome: Success, Failure (which counts towards the
// eviction of the endpoint), Shed (it refused because of load) or Cancelled (the caller left,
// which is no fault of the endpoint). Only the first call counts.
func (p *Pick) Done(outcome selection.Outcome) {
	if p.done {
		return
	}
	p.done = true
	p.service.Endpoints.Done(p.picked, p.router.now(), p.result(outcome))
	p.router.inFlight.Add(-1)
}

// Next gives the pick back like Done and picks another endpoint for the same request, none of
// which it tried before. The program decides whether the request may be repeated.
func (p *Pick) Next(outcome selection.Outcome) (Pick, error) {
	p.Done(outcome)
	tried := p.tried
	if tried == nil {
		tried = new(routing.Tried)
	}
	tried.Add(p.picked)
	return p.router.pick(Pick{router: p.router, service: p.service, key: p.key, tried: tried}, tried)
}

// NextAt is Next with the endpoint of a named worker, whatever its statistics, for a program
// that has connections to single endpoints only. The error wraps [selection.ErrNoEndpoint] if the
// worker is not among Endpoints, and [selection.ErrFull] if it has no room.
func (p *Pick) NextAt(worker string, outcome selection.Outcome) (Pick, error) {
	p.Done(outcome)
	next := Pick{router: p.router, service: p.service, key: p.key, tried: p.tried}
	err := fmt.Errorf("worker %s: %w: it has just left the range", worker, selection.ErrNoEndpoint)
	for _, t := range p.service.Route().Range {
		if t.Node != worker {
			continue
		}
		if next.picked, err = p.service.Endpoints.Take(t.ID, p.router.now()); err == nil {
			p.router.inFlight.Add(1)
			return next, nil
		}
	}
	return Pick{}, next.failed(err)
}
