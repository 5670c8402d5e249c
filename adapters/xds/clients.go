package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/membership/identity"
)

// clients are the open streams and the clients that they belong to. The gRPC server calls it
// from the goroutines of streams; it implements cache.Cache and, by callbacks, server.Callbacks.
type clients struct {
	cfg     Config
	source  *identity.Source // its certificates prove the node ids; nil: none do
	metrics *metrics
	lines   *loglimit.Limiter
	silent  *silent
	// changed has a value if subscriptions have changed since the last round of plans.
	changed chan struct{}

	mu      sync.Mutex // guards the fields below and those of streams and clients
	streams map[streamID]*openStream
	byID    map[string]*client
	absent  map[string]bool // ids of clients without a stream that keep their places
}

// streamID identifies a stream: both protocols count from 1.
type streamID struct {
	delta  bool
	number int64
}

type openStream struct {
	typeURL  string           // of requests that do not name it
	claims   *identity.Claims // of the certificate; nil without one
	of       *client
	services map[string]bool
	refusing bool // the client refused the last response
}

// client is an Envoy with at least one open stream.
type client struct {
	affinity.Relay
	services map[string]int // number of streams that subscribe to it
	streams  int
	// cache has a version for each service, so that only what has changed is sent.
	cache *cache.LinearCache
	// sent are the resources in the cache.
	sent map[string]*endpoint.ClusterLoadAssignment
	held map[*heldWatch]bool
}

// heldWatch waits until all of its services are planned for the client. Without this an Envoy
// would take "not planned yet" for "no endpoints".
type heldWatch struct {
	services map[string]struct{}
	open     func() (cancel func(), err error)
	cancel   func()
	ended    bool
}

func newClients(cfg Config, source *identity.Source, m *metrics, lines *loglimit.Limiter) *clients {
	return &clients{
		cfg: cfg, source: source, metrics: m, lines: lines, changed: make(chan struct{}, 1),
		silent: newSilent(), streams: map[streamID]*openStream{}, byID: map[string]*client{}, absent: map[string]bool{},
	}
}

// refuse counts a refusal and returns it as the status that ends the stream.
func (f *clients) refuse(reason string, code codes.Code, format string, args ...any) error {
	f.metrics.refused.WithLabelValues(reason).Inc()
	err := status.Errorf(code, "ringway: "+format, args...)
	f.lines.Log(slog.LevelWarn, "a stream of a client is refused", "reason", reason, "err", err)
	return err
}

func (f *clients) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// open adds a stream, which has no client until its first request.
func (f *clients) open(ctx context.Context, id streamID, typeURL string) error {
	claims, err := f.claimsOf(ctx)
	if err != nil {
		return f.refuse(refusedIdentity, codes.Unauthenticated, "%v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[id] = &openStream{typeURL: typeURL, claims: claims, services: map[string]bool{}}
	f.metrics.streams.Inc()
	return nil
}

// claimsOf returns the claims of the certificate of a stream, nil if certificates prove nothing.
func (f *clients) claimsOf(ctx context.Context) (*identity.Claims, error) {
	if f.source == nil {
		return nil, nil
	}
	info, ok := credentials.TLSInfo{}, false
	if from, _ := peer.FromContext(ctx); from != nil {
		info, ok = from.AuthInfo.(credentials.TLSInfo)
	}
	if !ok {
		return nil, errors.New("the connection has no certificate")
	}
	claims, err := f.source.PeerClaims(info.State)
	if err != nil {
		return nil, err
	}
	return &claims, nil
}

// close removes a stream; with its last stream a client is gone, and the planner keeps its
// places for the grace time.
func (f *clients) close(id streamID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[id]
	if s == nil {
		return // it was refused
	}
	delete(f.streams, id)
	f.metrics.streams.Dec()
	if s.of == nil {
		return
	}
	f.subscribe(s, nil)
	if s.of.streams--; s.of.streams == 0 {
		delete(f.byID, s.of.ID)
		f.metrics.clients.Set(float64(len(f.byID)))
	}
	f.notify()
}

// request is what both protocols have in common.
type request struct {
	node    *core.Node // nil if it is as before
	typeURL string
	nonce   string // of the response that the client accepts, or refuses by an error
	failed  *rpcstatus.Status
	// services returns the subscription after the request, given the one before it.
	services func(before map[string]bool) map[string]bool
	names    []string // those in the request
}

// handle checks a request and updates the subscription of its stream.
func (f *clients) handle(id streamID, r request) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[id]
	if s == nil {
		return f.refuse(refusedStreams, codes.Internal, "the stream is not known")
	}
	if cmp.Or(r.typeURL, s.typeURL) != resource.EndpointType {
		return f.refuse(refusedType, codes.Unimplemented, "type %.120q: this control plane serves endpoints only (EDS); take clusters, listeners and routes from the bootstrap or from another server", r.typeURL)
	}
	if len(r.names) > f.cfg.MaxServices {
		return f.refuse(refusedServices, codes.ResourceExhausted, "%d resource names: at most %d", len(r.names), f.cfg.MaxServices)
	}
	for _, name := range r.names {
		if err := affinity.ValidateService(name); err != nil {
			return f.refuse(refusedServiceName, codes.InvalidArgument, "resource name %.80q is no name of a service: set eds_cluster_config.service_name: %v", name, err)
		}
	}
	if err := f.name(s, r.node); err != nil {
		return err
	}
	f.countRefusals(s, r)
	next := r.services(s.services)
	more := 0
	for name := range next {
		if s.of.services[name] == 0 {
			more++
		}
	}
	if len(s.of.services)+more > f.cfg.MaxServices {
		return f.refuse(refusedServices, codes.ResourceExhausted, "%s subscribes to more than %d services", s.of.ID, f.cfg.MaxServices)
	}
	if !maps.Equal(next, s.services) {
		f.subscribe(s, next)
		f.notify()
	}
	return nil
}

// name gives a stream its client. The lock is held.
func (f *clients) name(s *openStream, node *core.Node) error {
	if node.GetId() == "" && s.of == nil {
		return f.refuse(refusedNode, codes.InvalidArgument, "the first request has no node id: give Envoy --service-node, or its bootstrap node.id")
	}
	if node == nil {
		return nil
	}
	id := affinity.Relay{ID: node.GetId(), Place: affinity.Place{Datacenter: node.GetLocality().GetZone(), Region: node.GetLocality().GetRegion()}}
	if err := checkClient(id); err != nil {
		return f.refuse(refusedNode, codes.InvalidArgument, "%v", err)
	}
	if s.of != nil {
		if s.of.ID != id.ID {
			return f.refuse(refusedNode, codes.InvalidArgument, "node id %q: the stream began as %q", id.ID, s.of.ID)
		}
		return nil
	}
	if s.claims != nil && s.claims.Node != id.ID {
		return f.refuse(refusedIdentity, codes.PermissionDenied, "node id %q: the certificate is that of %q", id.ID, s.claims.Node)
	}
	if s.claims != nil && s.claims.Datacenter != "" && s.claims.Datacenter != id.Datacenter {
		return f.refuse(refusedIdentity, codes.PermissionDenied, "zone %q of %s: the certificate is for the datacenter %q", id.Datacenter, id.ID, s.claims.Datacenter)
	}
	c := f.byID[id.ID]
	if len(f.cfg.Clients) > 0 {
		i := slices.IndexFunc(f.cfg.Clients, func(listed affinity.Relay) bool { return listed.ID == id.ID })
		if i < 0 {
			return f.refuse(refusedUnlisted, codes.PermissionDenied, "node id %q is not in the fixed list of clients", id.ID)
		}
		if listed := f.cfg.Clients[i]; listed.Place != id.Place {
			f.lines.Log(slog.LevelWarn, "client is elsewhere than in the fixed list, which counts: correct the list or its locality", "client", id.ID, "zone", id.Datacenter, "region", id.Region, "listed_zone", listed.Datacenter, "listed_region", listed.Region)
		}
		id = f.cfg.Clients[i]
	}
	switch {
	case c == nil && len(f.cfg.Clients) == 0 && !f.absent[id.ID] && len(f.byID)+len(f.absent) >= f.cfg.MaxClients:
		return f.refuse(refusedClients, codes.ResourceExhausted, "there are %d clients, the most that this control plane serves", len(f.byID)+len(f.absent))
	case c == nil:
		c = &client{
			services: map[string]int{}, cache: cache.NewLinearCache(resource.EndpointType),
			sent: map[string]*endpoint.ClusterLoadAssignment{}, held: map[*heldWatch]bool{},
		}
		f.byID[id.ID] = c
		delete(f.absent, id.ID)
		f.metrics.clients.Set(float64(len(f.byID)))
		f.lines.Log(slog.LevelInfo, "client connected", "client", id.ID)
	case c.streams >= maxStreams:
		return f.refuse(refusedStreams, codes.ResourceExhausted, "%s has %d streams: use ADS, where one is enough", id.ID, c.streams)
	}
	c.Relay = id // the newest stream knows best where the client runs
	c.streams++
	s.of = c
	return nil
}

// countRefusals counts and logs responses that the client has refused: the first in a row is logged.
// The lock is held.
func (f *clients) countRefusals(s *openStream, r request) {
	if r.failed != nil {
		f.metrics.nacks.Inc()
		if !s.refusing {
			f.lines.Log(slog.LevelWarn, "a client refuses endpoints", "client", s.of.ID, "err", fmt.Sprintf("%.256q", r.failed.GetMessage()))
		}
	}
	if r.nonce != "" {
		s.refusing = r.failed != nil
	}
}

// subscribe replaces the services of a stream. The lock is held.
func (f *clients) subscribe(s *openStream, next map[string]bool) {
	for name := range s.services {
		if !next[name] {
			if s.of.services[name]--; s.of.services[name] == 0 {
				delete(s.of.services, name)
			}
		}
	}
	for name := range next {
		if !s.services[name] {
			s.of.services[name]++
		}
	}
	s.services = next
}

// CreateWatch implements cache.Cache.
func (f *clients) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	if r.GetVersionInfo() == "" && r.GetResponseNonce() != "" {
		// The client refuses its first response. Without a version it would get an empty one.
		r.VersionInfo = "refused"
	}
	return f.watch(r.GetNode().GetId(), sub, func(c *client) (func(), error) { return c.cache.CreateWatch(r, sub, out) })
}

// CreateDeltaWatch implements cache.Cache.
func (f *clients) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	return f.watch(r.GetNode().GetId(), sub, func(c *client) (func(), error) { return c.cache.CreateDeltaWatch(r, sub, out) })
}

// Fetch implements cache.Cache.
func (*clients) Fetch(context.Context, *cache.Request) (cache.Response, error) {
	return nil, errors.New("xds: requests without a stream are not served")
}

// watch opens a watch of a client, as soon as all of its services are planned.
func (f *clients) watch(id string, sub cache.Subscription, open func(*client) (func(), error)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.byID[id]
	if c == nil {
		return nil, status.Errorf(codes.Internal, "ringway: the client %.80q has no stream", id)
	}
	h := &heldWatch{services: maps.Clone(sub.SubscribedResources()), open: func() (func(), error) { return open(c) }}
	if c.release(h) {
		return h.cancel, nil
	}
	c.held[h] = true
	return func() {
		f.mu.Lock()
		h.ended = true
		delete(c.held, h)
		cancel := h.cancel
		f.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	}, nil
}

// release opens a watch if all of its services are planned. The lock is held.
func (c *client) release(h *heldWatch) bool {
	for name := range h.services {
		if c.sent[name] == nil {
			return false
		}
	}
	h.cancel, _ = h.open() // fails only for another type, which handle refuses
	return true
}

// subscriptions returns the clients of each service, sorted by id, and the services that at
// least one of them has no endpoints of yet.
func (f *clients) subscriptions() (of map[string][]affinity.Relay, waiting map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of, waiting = map[string][]affinity.Relay{}, map[string]bool{}
	for _, c := range f.byID {
		for name := range c.services {
			of[name] = append(of[name], c.Relay)
			if c.sent[name] == nil {
				waiting[name] = true
			}
		}
	}
	for _, list := range of {
		slices.SortFunc(list, func(a, b affinity.Relay) int { return strings.Compare(a.ID, b.ID) })
	}
	return of, waiting
}

// publish sends to each client the resources that differ from those it has, and forgets those
// that it does not subscribe to any more. resources are by service, then by client. absent
// has the ids of clients without a stream, as the planner saw them; publish keeps it.
func (f *clients) publish(resources map[string]map[string]*endpoint.ClusterLoadAssignment, absent map[string]bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(absent, func(id string, _ bool) bool { return f.byID[id] != nil }) // connected meanwhile
	f.absent = absent
	f.metrics.absent.Set(float64(len(absent)))
	var errs []error
	for id, c := range f.byID {
		update, remove := map[string]types.Resource{}, []string(nil)
		for name := range c.services {
			next := resources[name][id]
			if next != nil && !proto.Equal(next, c.sent[name]) {
				update[name], c.sent[name] = next, next
			}
		}
		for name := range c.sent {
			if c.services[name] == 0 {
				remove = append(remove, name)
				delete(c.sent, name)
			}
		}
		if len(update)+len(remove) > 0 {
			f.metrics.updates.Add(float64(len(update)))
			errs = append(errs, c.cache.UpdateResources(update, remove))
		}
		for h := range c.held {
			if !h.ended && c.release(h) {
				delete(c.held, h)
			}
		}
	}
	return errors.Join(errs...)
}
