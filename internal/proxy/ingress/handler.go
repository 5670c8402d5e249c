package ingress

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// Services is the part of routing.Router that a handler uses. It is an interface so that tests
// can give a handler single services with the routes they need, without members and gossip.
type Services interface {
	Service(name string) (*routing.Service, bool)
}

// Config describes a Handler.
type Config struct {
	// Self is the ID of this relay.
	Self string
	// Services has the routes. Required.
	Services Services
	// Informed reports whether a service that Services lacks is really offered by no worker.
	// Default: always true.
	Informed func() bool
	// Empty reports whether Services has had no service since the start. Then any service may be
	// one whose workers have not been found yet. Default: always false.
	Empty func() bool
	// Unreached returns why this relay reaches too few workers or relays, see
	// routing.Router.Unreached. Default: always empty.
	Unreached func() string
	// Epoch is the zero of selection.Instant, as in the router. Required.
	Epoch time.Time
	// Requests are the settings of single requests.
	Requests
	// Progress is how long a request may go on without a byte; see upstream.Options. With
	// FromRelay it is a quarter longer, so that the relay that accepted the request ends it and
	// reports the silent side.
	Progress time.Duration
	// FromRelay is set on the peer listener: requests come from relays.
	FromRelay bool
	// Local is set if a program in this process makes the requests, each by Begin. Their
	// fields about their origin pass unchanged.
	Local bool
	// Cookies keep the requests of a client on one endpoint. With nil, the default, no
	// requests are kept together and no cookie is read.
	Cookies *Cookies
	// Circuits are per caller and service. With nil, the default, all requests pass.
	Circuits *circuit.Breakers
	// Unreachable is called for an endpoint that refused a connection or broke it off before an
	// answer. It must not block. Default: not called.
	Unreachable func(advertise.Endpoint)
	// Tracer makes spans of requests and of their attempts. Default nil: requests are not
	// traced, and the trace headers of their callers pass unchanged.
	Tracer Tracer
	// Records gets a record of each request that it wants. Default nil: there are none.
	Records *requestlog.Log
	// Strained reports whether this relay has too little memory for more requests. Default: always
	// false.
	Strained func() bool
	// Clients count the requests of each client; the handlers of a relay share one. Default: those of
	// this handler.
	Clients *Clients
	// Rates count for RateLimits and for the rates of Routes; the handlers of a relay share one. Default:
	// those of this handler.
	Rates *Rates
	// Blocked gets Blocks, and may have more of commands. Default: only Blocks.
	Blocked *BlockList
	// Explanations remember how the endpoints of sampled requests were chosen, if they have a
	// record. Default nil: nothing is remembered.
	Explanations *Explanations
	// Metrics counts requests. Required; the listeners of a relay share one.
	Metrics *Metrics
	// Logger gets the details of failed requests at debug level. Required.
	Logger *slog.Logger
}

// Handler answers requests. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	namer   namer
	blocks  *BlockList  // nil if other relays decide
	rates   *rateLimits // nil without any
	sampler requestlog.Sampler
	vias    [3]string // if Config.Via is set
}

// New returns a handler.
func New(cfg Config) *Handler {
	if cfg.Unreachable == nil {
		cfg.Unreachable = func(advertise.Endpoint) {}
	}
	if cfg.Unreached == nil {
		cfg.Unreached = func() string { return "" }
	}
	if cfg.Clients == nil {
		cfg.Clients = NewClients()
	}
	if cfg.Rates == nil {
		cfg.Rates = NewRates(nil)
	}
	if cfg.Strained == nil {
		cfg.Strained = func() bool { return false }
	}
	if cfg.Informed == nil {
		cfg.Informed = func() bool { return true }
	}
	if cfg.Empty == nil {
		cfg.Empty = func() bool { return false }
	}
	h := &Handler{cfg: cfg, sampler: requestlog.NewSampler(cfg.Record.Sample)}
	if !cfg.FromRelay { // between relays only the header counts, because the first relay has decided
		h.namer = newNamer(cfg.Domain, cfg.Routes)
	}
	if !cfg.FromRelay && !cfg.Local {
		if h.blocks = cfg.Blocked; h.blocks == nil {
			h.blocks = NewBlockList(nil)
		}
		h.blocks.setFile(cfg.Blocks)
	}
	if !cfg.Local {
		h.rates = newRateLimits(&cfg.Requests, cfg.Rates)
	}
	if cfg.Via {
		h.vias = viaValues(cfg.Self)
	}
	return h
}

// ServeHTTP carries one request or answers with an error.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := requestPool.Get().(*request)
	defer t.free() // also if a panic aborts the answer
	t.handler, t.w, t.r = h, w, r
	t.begin(h.namer.service(r))
	if t.begun != nil {
		t.deliver()
	}
	if t.aborted {
		panic(http.ErrAbortHandler)
	}
}

// begin carries a request for this service until the answer of an endpoint has begun, or answers it
// with an error.
func (t *request) begin(name string) {
	h, r := t.handler, t.r
	t.record = h.beginRecord(t.w, r, name)
	if !t.acceptable() {
		return
	}
	if name != "" && !h.cfg.FromRelay && !h.cfg.ForClients(name) {
		t.refuseUnknown(name, wire.CodeUnknownService) // what else there is does not concern these clients
		return
	}
	service, known := h.cfg.Services.Service(name)
	if !known {
		code := h.unknown()
		// Search again: a relay gets to know a service before it is informed.
		if service, known = h.cfg.Services.Service(name); !known {
			t.refuseUnknown(name, code)
			return
		}
	}
	if service.InFlight.Add(1) > int64(h.cfg.MaxInFlight) {
		service.InFlight.Add(-1)
		h.cfg.Metrics.forService(service).overloaded(limitFixed)
		t.exceeds(service, wire.CodeOverloaded, fmt.Sprintf("this relay carries %d requests of this service, as many as it takes", h.cfg.MaxInFlight))
		return
	}
	t.service = service
	if h.cfg.FromRelay {
		service.Forwarded.Add(1)
	}
	t.from = h.originOf(r)
	if by := h.blocks.of(); by != nil && t.blocked(by, service) {
		return
	}
	if t.from == fromClient && !t.enterClient(service) {
		return
	}
	if h.cfg.Strained() {
		h.cfg.Metrics.forService(service).overloaded(limitMemory)
		t.exceeds(service, wire.CodeExhausted, "this relay has little memory left and takes no more requests until some have ended")
		return
	}
	if h.cfg.AdaptiveInFlight && answersSoon(r) {
		if !service.Waiting.Enter() {
			h.cfg.Metrics.forService(service).overloaded(limitAdaptive)
			t.exceeds(service, wire.CodeOverloaded, "more requests of this service wait for their answers than its endpoints complete in time")
			return
		}
		t.waiting = &service.Waiting
	}
	t.budget = h.budgetOf(service)
	t.exposed, t.policy = h.exposes(r), h.policyOf(service)
	if upstream.ForTCP(r) {
		t.tcp = h.cfg.Metrics.sessionsOf(service)
	}
	t.key, t.session.cookie = t.findKey(), h.cfg.Cookies.forService(service)
	t.tried.Session = upstream.Upgrades(r)
	t.began = time.Since(h.cfg.Epoch)
	t.all, t.metrics, t.peer = h.cfg.Metrics, h.cfg.Metrics.forService(service), h.cfg.FromRelay
	t.record.carry(t.began)
	if h.cfg.Tracer != nil {
		t.beginTrace()
	}
	if h.cfg.Circuits != nil {
		t.guarded(h.cfg.Circuits)
		return
	}
	t.run()
}

// WholeHost is the domain with which a host without a dot names the service.
const WholeHost = "."

// namer finds the service of a request: header, then host label, then routes.
type namer struct {
	suffix string      // "." + domain; empty if host names are not used
	whole  bool        // a host without a dot names the service, as in the targets of gRPC clients
	routes *routeTable // nil without routes
}

func newNamer(domain string, routes []Route) namer {
	n := namer{routes: newRouteTable(routes)}
	switch domain {
	case "":
	case WholeHost:
		n.whole = true
	default:
		name, err := plainHost(domain)
		if err != nil { // CheckDomain has reported it
			name = hostName(domain)
		}
		n.suffix = "." + name
	}
	return n
}

// service returns the name of the service of a request, empty if it names none.
func (n namer) service(r *http.Request) string {
	if name := r.Header.Get(wire.ServiceHeader); name != "" {
		return name
	}
	if n.suffix == "" && !n.whole && n.routes == nil {
		return ""
	}
	host := hostName(r.Host)
	if name := n.ofHost(host); name != "" || n.routes == nil {
		return name
	}
	if rule := n.routes.find(host, r); rule != nil {
		return rule.service
	}
	return ""
}

// ofHost returns the service that a host below the domain names.
func (n namer) ofHost(host string) string {
	if n.whole && host != "" && !strings.ContainsAny(host, ".:") {
		return host
	}
	if n.suffix != "" {
		if label, ok := strings.CutSuffix(host, n.suffix); ok && label != "" {
			first, _, _ := strings.Cut(label, ".")
			return first
		}
	}
	return ""
}

// smallBody is the size in bytes up to which a client is assumed to send a body
// immediately.
const smallBody = 64 << 10

// answersSoon reports whether only the service determines the time until the answer
// begins. For an upload the client determines it, and a tunnel has no such time. A request
// over HTTP/2 without a length may be an upload or not; gRPC calls have no length.
func answersSoon(r *http.Request) bool {
	if r.ContentLength < 0 && r.ProtoMajor == 1 {
		return false
	}
	return r.ContentLength <= smallBody && !upstream.Upgrades(r)
}

// exposes reports whether the answer to a request shows where it went.
func (h *Handler) exposes(r *http.Request) bool {
	if h.cfg.FromRelay {
		return r.Header[wire.ExposeHeader] != nil
	}
	return h.cfg.ExposeRouteHeaders
}
