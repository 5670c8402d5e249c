package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/requestlog"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
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
	// Progress is how long a request may go on without a byte; see upstream.Exchange. With
	// Hop it is a quarter longer, so that the relay that accepted the request ends it and
	// reports the silent side.
	Progress time.Duration
	// Hop is set on the peer listener: requests come from relays.
	Hop bool
	// Local is set if a program in this process makes the requests, each marked by WithLocal.
	// What they say about their origin passes unchanged.
	Local bool
	// Cookies keep the requests of a client on one endpoint. With nil, the default, no
	// requests are kept together and no cookie is read.
	Cookies *Cookies
	// Circuits are per caller and service. With nil, the default, all requests pass.
	Circuits *circuit.Breakers
	// Unreachable is called for an endpoint that refused a connection. It must not block.
	// Default: not called.
	Unreachable func(advertise.Endpoint)
	// Tracer makes spans of requests and of their attempts. Default nil: requests are not
	// traced, and the trace headers of their callers pass unchanged.
	Tracer trace.Tracer
	// Records gets a record of each request that it wants. Default nil: there are none.
	Records *requestlog.Log
	// Strained reports whether this relay has too little memory for more requests. Default: always
	// false.
	Strained func() bool
	// Clients count the requests of each client; the handlers of a relay share one. Default: those of
	// this handler.
	Clients *Clients
	// Explanations remember how the endpoints of sampled requests were chosen, if they have a
	// record. Default nil: nothing is remembered.
	Explanations *Explanations
	// Metrics counts requests. Required; the listeners of a relay share one.
	Metrics *Metrics
	// Logger gets the details of failed requests at debug level. Required.
	Logger *slog.Logger
}

// DefaultAttemptShare leaves time for two other endpoints after one that hangs.
const DefaultAttemptShare = 0.33

// DefaultProgress is how long a request may go on without a byte in either direction.
const DefaultProgress = time.Minute

// DefaultRequests are the limits of the relay's binary and of the router of a program.
func DefaultRequests() Requests {
	return Requests{
		Timeout: 30 * time.Second, AttemptShare: DefaultAttemptShare, MaxAttempts: 5, RetryBudget: 0.2,
		MaxInFlight: 10_000, MaxInFlightPerClient: ShareOfFree, AdaptiveInFlight: true,
	}
}

// Requests are the settings of single requests. A reload replaces all of them, with a new
// Handler.
type Requests struct {
	// Domain and Routes determine the service of a request without wire.ServiceHeader. With
	// WholeHost as the domain a host without a dot is the name.
	Domain string
	Routes []Route
	// Keys are the places of the keys in clients' requests. Default: wire.KeyHeader.
	Keys Keys
	// Timeout bounds the time until an answer begins, for all attempts together. While a
	// client sends its body, it counts from the last byte received, and for an open stream of
	// HTTP/2, such as a call of gRPC that streams, from its end. A client's own deadline, in
	// wire.TimeoutHeader or grpc-timeout, shortens it, and holds for open streams.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt that may be repeated on another endpoint. Default 0:
	// only Timeout applies.
	AttemptTimeout time.Duration
	// AttemptShare is AttemptTimeout as a share of Timeout, for services whose policy has
	// another request timeout and no attempt timeout. Default 0: AttemptTimeout holds for
	// these too.
	AttemptShare float64
	// Policies are the limits of single services, in place of Timeout, AttemptTimeout and
	// Progress. Default: what the services advertise.
	Policies Policies
	// MaxAttempts is how many endpoints one request may try, 1 to 8.
	MaxAttempts int
	// RetryBudget is the share of requests that may be retried, 0 to 1.
	RetryBudget float64
	// MaxInFlight bounds the requests in flight of one service.
	MaxInFlight int
	// MaxInFlightPerClient bounds the requests in flight of one client address, to all services
	// together; an IPv6 /64 counts as one address. Trusted proxies and relays are not bounded, and
	// the clients of a proxy on this host are distinguished if it names them. Default 0: no bound.
	MaxInFlightPerClient int
	// AdaptiveInFlight also bounds how many requests of one service wait for their answers,
	// by the number that the endpoints complete; see package overload. Default false: only
	// MaxInFlight applies.
	AdaptiveInFlight bool
	// OnlyServices are the services that clients may reach. Default: all. With Hop it is not
	// read: the relay that forwards a request decides.
	OnlyServices []string
	// TrustedProxies are the networks whose fields about a request's origin are trusted.
	// Default: none; such fields of clients are replaced or dropped.
	TrustedProxies []netip.Prefix
	// ExposeRouteHeaders adds relay, endpoint and attempts to answers, and details to this
	// relay's own answers. With Hop it is not read: the relay that forwards a request
	// decides, by wire.ExposeHeader.
	ExposeRouteHeaders bool
	// Via adds this relay to the field Via of requests. With Hop or Local it is not read: the relay
	// that has the client adds itself.
	Via bool
	// Record decides which records of requests are kept and what they contain.
	Record requestlog.Policy
}

// savings is how many retries a relay without recent retries can make in a burst.
const savings = 500

// Handler answers requests. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	namer   namer
	budget  *selection.RetryBudget
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
	if cfg.Strained == nil {
		cfg.Strained = func() bool { return false }
	}
	if cfg.Informed == nil {
		cfg.Informed = func() bool { return true }
	}
	if cfg.Empty == nil {
		cfg.Empty = func() bool { return false }
	}
	h := &Handler{cfg: cfg, budget: selection.NewRetryBudget(cfg.RetryBudget, savings), sampler: requestlog.NewSampler(cfg.Record.Sample)}
	if !cfg.Hop { // between relays only the header counts, because the first relay has decided
		h.namer = newNamer(cfg.Domain, cfg.Routes)
	}
	if cfg.Via {
		h.vias = viaValues(cfg.Self)
	}
	return h
}

// ServeHTTP carries one request or answers with an error.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := tries.Get().(*try)
	defer t.free() // also if a panic aborts the answer
	name := h.service(r)
	t.handler, t.w, t.r, t.record = h, w, r, h.beginRecord(w, r, name)
	if !t.acceptable() {
		return
	}
	if len(h.cfg.OnlyServices) > 0 && !h.cfg.Hop && name != "" && !slices.Contains(h.cfg.OnlyServices, name) {
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
		h.cfg.Metrics.of(service).overloaded(limitFixed)
		t.exceeds(service, wire.CodeOverloaded, fmt.Sprintf("this relay carries %d requests of this service, as many as it takes", h.cfg.MaxInFlight))
		return
	}
	t.service = service
	if h.cfg.Hop {
		service.Forwarded.Add(1)
	}
	t.from = h.originOf(r)
	if t.from == fromClient && !t.enterClient(service) {
		return
	}
	if h.cfg.Strained() {
		h.cfg.Metrics.of(service).overloaded(limitMemory)
		t.exceeds(service, wire.CodeExhausted, "this relay has little memory left and takes no more requests until some have ended")
		return
	}
	if h.cfg.AdaptiveInFlight && answersSoon(r) {
		if t.waits = service.Waiting.Enter(); !t.waits {
			h.cfg.Metrics.of(service).overloaded(limitAdaptive)
			t.exceeds(service, wire.CodeOverloaded, "more requests of this service wait for their answers than its endpoints complete in time")
			return
		}
	}
	h.budget.Earn()
	t.metrics, t.exposed, t.policy = h.cfg.Metrics.of(service), h.exposes(r), h.policyOf(service)
	if upstream.ForTCP(r) {
		t.tcp = h.cfg.Metrics.sessionsOf(service)
	}
	t.key, t.session.cookie = t.findKey(), h.cfg.Cookies.of(service)
	t.tried.Session = upstream.Upgrades(r)
	t.began = time.Since(h.cfg.Epoch)
	t.record.carry(t.began)
	if h.cfg.Tracer != nil {
		t.beginSpans()
	}
	if h.cfg.Circuits != nil {
		t.guarded(h.cfg.Circuits)
		return
	}
	t.run()
}

// unknown returns the code of the answer to a request for a service that this relay does not
// know.
func (h *Handler) unknown() wire.Code {
	switch {
	case !h.cfg.Informed():
		return wire.CodeNotReady
	case h.cfg.Empty():
		return wire.CodeNoEndpoint
	}
	return wire.CodeUnknownService
}

// refuseUnknown answers a request for a service that this relay does not know, with the code of
// unknown.
func (t *try) refuseUnknown(name string, code wire.Code) {
	h := t.handler
	if h.cfg.Hop && name != "" {
		// The forwarding relay knows the service, so other relays may know it as well.
		h.cfg.Metrics.unnamed(codeMisdirected)
		f := failure{Code: codeMisdirected, Service: name}
		h.traceRefusal(t.r, f)
		misdirect(t.w)
		t.record.refused(&f, http.StatusMisdirectedRequest, 0)
		return
	}
	f := failure{Text: fmt.Sprintf("no worker offers or recently offered the service %.80q", name), Code: code, Service: name}
	switch {
	case name == "":
		f = failure{Text: "the request names no service: set the " + wire.ServiceHeader + " header, or use a host or path that the relay has a route for", Code: wire.CodeBadRequest}
	case code == wire.CodeNotReady:
		f.Text, f.retryAfter = "this relay does not know yet which services there are", retryAfter
	case code == wire.CodeNoEndpoint:
		f.Text, f.retryAfter = "this relay knows no service yet: no worker has been found", retryAfter
	}
	h.cfg.Metrics.unnamed(f.Code)
	t.answerRefusal(f)
}

// exceeds answers a request that exceeds a limit of the service.
func (t *try) exceeds(service *routing.Service, code wire.Code, text string) {
	f := failure{Text: text, Code: code, Service: service.Name, retryAfter: retryAfter}
	if code == wire.CodeOverloaded && t.handler.blameRelay(&f) {
		f.Code = wire.CodeNotReady
	}
	metrics := t.handler.cfg.Metrics.of(service)
	metrics.rejected(f.Code)
	metrics.refused.Add(1)
	if t.handler.cfg.Hop {
		metrics.forwardedEnded(true)
	}
	t.answerRefusal(f)
}

// blameRelay makes f name this relay, in place of the service, while this relay reaches too
// few members. It reports whether that is so.
func (h *Handler) blameRelay(f *failure) bool {
	reason := h.cfg.Unreached()
	if reason == "" {
		return false
	}
	f.detail = f.details() + "; this relay " + reason
	f.Text = "this relay reaches too few of the members that it should, and is not ready: ask another relay"
	return true
}

func (t *try) answerRefusal(f failure) {
	t.handler.traceRefusal(t.r, f)
	status, n := t.handler.writeFailure(t.w, t.r, f)
	t.record.refused(&f, status, n)
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
	return r.ContentLength <= smallBody && r.Header["Upgrade"] == nil
}

// exposes reports whether the answer to a request shows where it went.
func (h *Handler) exposes(r *http.Request) bool {
	if h.cfg.Hop {
		return r.Header[wire.ExposeHeader] != nil
	}
	return h.cfg.ExposeRouteHeaders
}

// maxCaller is the length in bytes to which the name of a caller is cut.
const maxCaller = 128

// callerKey is the key of the caller's name in the context of a request.
type callerKey struct{}

// WithCaller returns a context for the requests of a client that presented a
// certificate. The name must be valid as the value of a header.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, &name) // a pointer, so that a request allocates nothing
}

// certifiedName returns the name in the certificate of the client of a request, empty if it has
// none.
func certifiedName(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(*string)
	if name == nil {
		return ""
	}
	return *name
}

// caller returns the sender of the request.
func (t *try) caller() string { return callerOf(t.r, t.from) }

// callerOf returns the sender of a request. A trusted proxy names it in wire.CallerHeader; of
// several values the last counts, which is the proxy's own. The caller is empty if the
// proxy names none, because the proxy's address stands for all of its clients. Without a
// proxy the caller is the name in the certificate of the client, or else its address, since a
// client could put any name into the header. A relay that forwards passes such a name on;
// without one the caller is empty, because the address is that of the relay.
func callerOf(r *http.Request, from origin) string {
	if from == fromRelay {
		if values := r.Header[wire.CallerHeader]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
	if from == fromProgram {
		return ""
	}
	if from == fromClient {
		if name := certifiedName(r); name != "" {
			return name
		}
		if addr := clientAddr(r.RemoteAddr); addr.Is6() {
			return addr.String()
		}
		return addrOnly(r.RemoteAddr)
	}
	values := r.Header[wire.CallerHeader]
	if len(values) == 0 {
		return ""
	}
	last := values[len(values)-1]
	if len(last) > maxCaller {
		return strings.Clone(last[:maxCaller]) // so that the rest of the string can be freed
	}
	return last
}

// guarded runs the try if its caller's circuit for the service allows the request, and
// reports the result to the circuit. Requests without a caller pass.
func (t *try) guarded(circuits *circuit.Breakers) {
	caller := t.caller()
	if caller == "" {
		t.run()
		return
	}
	ticket, err := circuits.Allow(caller, t.service.Name, "")
	if err != nil {
		t.refuse(err)
		return
	}
	t.ticket = ticket
	defer func() { t.ticket.Done(t.circuitOutcome) }() // also if a panic aborts the answer
	t.run()
}

// refuse answers a request that the circuit did not allow.
func (t *try) refuse(err error) {
	f := failure{Text: err.Error(), Code: wire.CodeCircuitOpen, Service: t.service.Name, retryAfter: retryAfter}
	var open *circuit.NotHealthyError
	if errors.As(err, &open) {
		f.Text = fmt.Sprintf("too many requests of caller %.128q to this service failed lately: it is not asked again before the time in Retry-After", open.Caller)
		f.retryAfter = max(f.retryAfter, open.RetryAfter)
	}
	t.answer(f, time.Since(t.handler.cfg.Epoch))
}

// circuitOutcomeOf returns the outcome of an answer for the circuit of its caller.
func circuitOutcomeOf(r upstream.Result) selection.Outcome {
	switch {
	case r.Shed:
		return selection.Cancelled
	case r.Status >= http.StatusInternalServerError:
		return selection.Failure
	}
	return selection.Success
}

// circuitOutcomeOfCode returns the outcome of an answer of this relay for the circuit.
func circuitOutcomeOfCode(c wire.Code) selection.Outcome {
	if c == wire.CodeUpstreamFailed || c == wire.CodeTimeout {
		return selection.Failure
	}
	return selection.Cancelled // no endpoint was asked, or the request was wrong
}
