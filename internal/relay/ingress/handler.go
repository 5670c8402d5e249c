package ingress

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection/budget"
	"github.com/ringway/ringway/selection/circuit"
)

// Services is what a handler needs of routing.Router.
type Services interface {
	Service(name string) (*routing.Service, bool)
}

// Config describes a Handler.
type Config struct {
	// Self is this relay's id.
	Self string
	// Services has the routes. Required.
	Services Services
	// Informed reports whether a service that Services does not have is one that no
	// worker offers. Default: it always is.
	Informed func() bool
	// Epoch is the zero of selection.Instant, the router's. Required.
	Epoch time.Time
	// Domain and Routes name the service of a request without ServiceHeader.
	Domain string
	Routes []Route
	// Keys say where the keys of clients' requests are. Default: in KeyHeader.
	Keys Keys
	// Timeout bounds the time until an answer begins, all attempts together; while a
	// client sends its body, from the last byte of that on. A client's own deadline, in
	// TimeoutHeader or grpc-timeout, shortens it.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt that may be repeated on another endpoint.
	// Default 0: only Timeout does.
	AttemptTimeout time.Duration
	// Progress is how long a request may go on without a byte; see
	// upstream.Exchange. With Hop it is a quarter longer: the relay that knows the
	// client is to end it, and to say who was silent.
	Progress time.Duration
	// MaxAttempts is how many endpoints one request may try, 1 to 8.
	MaxAttempts int
	// RetryBudget is the share of requests that may be retried, 0 to 1.
	RetryBudget float64
	// MaxInFlight bounds the requests of one service.
	MaxInFlight int
	// MaxInFlightPerClient bounds those of one client address among them; of IPv6 a
	// /64 is one. Trusted proxies and relays are not bounded. Default 0: none is.
	MaxInFlightPerClient int
	// AdaptiveInFlight also bounds the requests of one service that wait for their answers,
	// by what the endpoints complete; see package overload. Default false: only
	// MaxInFlight bounds them.
	AdaptiveInFlight bool
	// TrustedProxies are the networks whose word counts for where a request comes
	// from. Default: none; what clients say of it is replaced or dropped.
	TrustedProxies []netip.Prefix
	// ExposeRouteHeaders adds relay, endpoint and attempts to answers, and details to
	// the relay's own. With Hop it is not read: the relay that forwards a request
	// asks for them, in ExposeHeader, or does not.
	ExposeRouteHeaders bool
	// Hop is set on the peer listener: requests come from relays.
	Hop bool
	// Cookies hold the requests of a client together at one endpoint. Nil, the default,
	// holds none together, and no cookie is looked at.
	Cookies *Cookies
	// Circuits are per caller and service. Nil, the default, lets everything pass.
	Circuits *circuit.Breakers
	// Unreachable is told of an endpoint that refused a connection. Default: nobody
	// is. It must not block.
	Unreachable func(advertise.Endpoint)
	// Tracer makes spans of requests and of their attempts. Default nil: requests are
	// not traced, and the headers of their callers' traces pass as they are.
	Tracer trace.Tracer
	// Metrics counts. Required; a relay shares one between its listeners.
	Metrics *Metrics
	// Logger gets the detail of failed requests at debug. Required.
	Logger *slog.Logger
}

// savings is how many retries a quiet relay can have at once.
const savings = 500

// Handler answers requests. It is safe for concurrent use.
type Handler struct {
	cfg    Config
	namer  namer
	budget *budget.Budget
}

// New returns a handler.
func New(cfg Config) *Handler {
	if cfg.Unreachable == nil {
		cfg.Unreachable = func(advertise.Endpoint) {}
	}
	if cfg.Informed == nil {
		cfg.Informed = func() bool { return true }
	}
	if cfg.Hop {
		cfg.Progress = upstream.BehindRelay(cfg.Progress)
	}
	h := &Handler{cfg: cfg, budget: budget.New(cfg.RetryBudget, savings)}
	if !cfg.Hop { // between relays only the header counts: the first one decided
		h.namer.routes = cfg.Routes
		if cfg.Domain != "" {
			h.namer.suffix = "." + cfg.Domain
		}
	}
	return h
}

// ServeHTTP carries one request, or says why not.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := h.namer.service(r)
	service, known := h.cfg.Services.Service(name)
	if !known {
		informed := h.cfg.Informed()
		// Looked for again: a relay learns of a service before it is informed.
		if service, known = h.cfg.Services.Service(name); !known {
			h.refuseUnknown(w, r, name, informed)
			return
		}
	}
	if service.InFlight.Add(1) > int64(h.cfg.MaxInFlight) {
		service.InFlight.Add(-1)
		h.cfg.Metrics.of(service).overloaded(limitFixed)
		h.refuse(w, r, service, failure{
			Text: fmt.Sprintf("this relay carries %d requests of this service, as many as it takes", h.cfg.MaxInFlight), Code: CodeOverloaded, after: retryAfter,
		})
		return
	}
	defer service.InFlight.Add(-1)
	from := h.originOf(r)
	if limit := h.cfg.MaxInFlightPerClient; limit > 0 && from == fromClient {
		client := clientAddr(r.RemoteAddr)
		if !service.Clients.Enter(client, limit) {
			h.refuse(w, r, service, failure{
				Text: fmt.Sprintf("this relay carries %d requests of this client to this service, as many as it takes", limit), Code: CodeClientLimit, after: retryAfter,
			})
			return
		}
		defer service.Clients.Leave(client)
	}
	waits := h.cfg.AdaptiveInFlight && answersSoon(r)
	if waits && !service.Waiting.Enter() {
		h.cfg.Metrics.of(service).overloaded(limitAdaptive)
		h.refuse(w, r, service, failure{
			Text: "more requests of this service wait for their answers than its endpoints complete in time", Code: CodeOverloaded, after: retryAfter,
		})
		return
	}
	h.budget.Earn()
	t := tries.Get().(*try)
	defer t.free()
	t.handler, t.service, t.metrics, t.w, t.r = h, service, h.cfg.Metrics.of(service), w, r
	t.from, t.exposed, t.waits = from, h.exposes(r), waits
	t.key, t.session.cookie = t.findKey(), h.cfg.Cookies.of(service.Name)
	t.began = time.Since(h.cfg.Epoch)
	if h.cfg.Tracer != nil {
		t.beginSpans()
		defer t.endSpans()
	}
	if h.cfg.Circuits != nil {
		t.guarded(h.cfg.Circuits)
		return
	}
	t.run()
}

// refuseUnknown answers a request for no service that this relay knows.
func (h *Handler) refuseUnknown(w http.ResponseWriter, r *http.Request, name string, informed bool) {
	if h.cfg.Hop && name != "" {
		// The forwarding relay has heard of the service, so others may have, too.
		h.cfg.Metrics.unnamed(codeMisdirected)
		h.traceRefusal(r, failure{Code: codeMisdirected, Service: name})
		misdirect(w)
		return
	}
	f := failure{Text: fmt.Sprintf("no worker offers or recently offered the service %.80q", name), Code: CodeUnknownService, Service: name}
	switch {
	case name == "":
		f = failure{Text: "the request names no service: set the " + ServiceHeader + " header, or use a host or path that the relay has a route for", Code: CodeBadRequest}
	case !informed:
		f.Text, f.Code, f.after = "this relay does not know yet which services there are", CodeNotReady, retryAfter
	}
	h.cfg.Metrics.unnamed(f.Code)
	h.traceRefusal(r, f)
	f.write(w, h.exposes(r))
}

// refuse answers a request that is too many.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, service *routing.Service, f failure) {
	f.Service = service.Name
	h.cfg.Metrics.of(service).rejected(f.Code)
	h.traceRefusal(r, f)
	f.write(w, h.exposes(r))
}

// smallBody is up to where a body is taken to be sent at once, in bytes.
const smallBody = 64 << 10

// answersSoon reports whether the time until the answer to a request begins is the
// service's. That of an upload is the client's, and a tunnel has its own. What HTTP/2 sends
// without a length may be either; calls of gRPC are sent so.
func answersSoon(r *http.Request) bool {
	if r.ContentLength < 0 && r.ProtoMajor == 1 {
		return false
	}
	return r.ContentLength <= smallBody && r.Header["Upgrade"] == nil
}

// exposes reports whether the answer to a request says where it went.
func (h *Handler) exposes(r *http.Request) bool {
	if h.cfg.Hop {
		return r.Header[ExposeHeader] != nil
	}
	return h.cfg.ExposeRouteHeaders
}
