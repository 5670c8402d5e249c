package ingress

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay/routing"
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
	// Epoch is the zero of selection.Instant, the router's. Required.
	Epoch time.Time
	// Domain and Routes name the service of a request without ServiceHeader.
	Domain string
	Routes []Route
	// Timeout bounds the time until an answer begins, all attempts together.
	Timeout time.Duration
	// MaxAttempts is how many endpoints one request may try, 1 to 8.
	MaxAttempts int
	// RetryBudget is the share of requests that may be retried, 0 to 1.
	RetryBudget float64
	// MaxInFlight bounds the requests of one service.
	MaxInFlight int
	// ExposeRouteHeaders adds relay, endpoint and attempts to answers.
	ExposeRouteHeaders bool
	// Hop is set on the peer listener: requests come from relays.
	Hop bool
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
		f := failure{Text: fmt.Sprintf("no worker offers or recently offered the service %.80q", name), Code: CodeUnknownService, Service: name}
		if name == "" {
			f = failure{Text: "the request names no service: set the " + ServiceHeader + " header, or use a host or path that the relay has a route for", Code: CodeBadRequest}
		}
		h.cfg.Metrics.unnamed(f.Code)
		h.traceRefusal(r, f)
		f.write(w)
		return
	}
	if service.InFlight.Add(1) > int64(h.cfg.MaxInFlight) {
		service.InFlight.Add(-1)
		h.cfg.Metrics.of(name).rejected(CodeOverloaded)
		f := failure{Text: fmt.Sprintf("relay %s carries %d requests of this service, as many as it takes", h.cfg.Self, h.cfg.MaxInFlight),
			Code: CodeOverloaded, Service: name, after: retryAfter}
		h.traceRefusal(r, f)
		f.write(w)
		return
	}
	defer service.InFlight.Add(-1)
	h.budget.Earn()
	t := tries.Get().(*try)
	defer t.free()
	t.handler, t.service, t.metrics, t.w, t.r = h, service, h.cfg.Metrics.of(name), w, r
	t.key = keyOf(r)
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
