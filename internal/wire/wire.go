package wire

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// The headers between clients, relays and workers. Clients can set ServiceHeader,
// KeyHeader and TimeoutHeader, and trusted proxies CallerHeader as well. The first relay
// drops the others.
const (
	// ServiceHeader names the service of a request.
	ServiceHeader = "Ringway-Service"
	// KeyHeader is the key for strategies that use one: all requests with one key go to one
	// worker. A relay can be configured to read the key of a client's request elsewhere. The
	// header is passed on to other relays and not to workers.
	KeyHeader = "Ringway-Key"
	// TimeoutHeader is how long the sender of a request waits for the answer to begin, in
	// milliseconds. Relays and sidecars pass on the time that is left, also to the service.
	TimeoutHeader = "Ringway-Timeout"
	// CallerHeader names the sender of a request for the circuits. A service gets it if the
	// sender presented a certificate with the name.
	CallerHeader = "Ringway-Caller"
	// RequestIDHeader is the ID of a request in the records of all relays. Trusted proxies and
	// relays may set it; a relay that writes records passes it on, also to the service.
	RequestIDHeader = "X-Request-Id"
	// ConnectionHeader is on a request for a TCP session: the addresses of the client's
	// connection, its own and the one that it connected to, IP:port each, with a space
	// between.
	ConnectionHeader = "Ringway-Connection"
	// HopHeader carries the ID of the relay that forwarded a request.
	HopHeader = "Ringway-Hop"
	// CountedCallerHeader names the caller of a forwarded request for limits on requests per second.
	CountedCallerHeader = "Ringway-Counted-Caller"
	// CountedRouteHeader names the route with a rate that a forwarded request has matched, "-" for
	// none. The relay that gets the request cannot know it: fields that routes compare, such as
	// those that Connection names, are not all passed on.
	CountedRouteHeader = "Ringway-Counted-Route"
	// ExposeHeader marks a forwarded request whose answer may show where it went.
	ExposeHeader = "Ringway-Expose"
	// RelayHeader, EndpointHeader and AttemptsHeader are on answers if route headers are
	// exposed.
	RelayHeader    = "Ringway-Relay"
	EndpointHeader = "Ringway-Endpoint"
	AttemptsHeader = "Ringway-Attempts"
)

// The headers that endpoints send to relays. They never reach a client.
const (
	// LoadHeader is how many other requests an endpoint has in flight.
	LoadHeader = "Ringway-Load"
	// FailedHeader is set on a sidecar's own answer to a request that its service did not
	// answer. FailedUnsent: no byte of the request was sent to the service. FailedFull: no
	// byte was sent because the service has as many requests in flight as slots. Any other
	// value: the service may have acted on the request. A relay sets it to the Code of its own
	// answer to another relay.
	FailedHeader = "Ringway-Failed"
	FailedUnsent = "unsent"
	FailedFull   = "full"
	FailedSent   = "sent"
	// FailedCancelled is FailedSent of a service that has cancelled the request by a reset of its
	// stream. Between relays it stands for the code of such an answer.
	FailedCancelled = "cancelled"
)

// CallType reports whether a Content-Type is that of gRPC. Of the other types that begin alike,
// that of gRPC-Web has its trailers in the body.
func CallType(value string) bool {
	const kind = "application/grpc"
	return strings.HasPrefix(value, kind) && (len(value) == len(kind) || value[len(kind)] == '+' || value[len(kind)] == ';')
}

// UpgradeTCP is the value of Upgrade in a request for a TCP session between relays and
// sidecars. After the 101 both directions carry the bytes of the session.
const UpgradeTCP = "ringway-tcp"

// ReservedPrefix begins the canonical names of the fields that are reserved for relays.
const ReservedPrefix = "Ringway-"

// Field is a header field. Name must be in canonical form (http.CanonicalHeaderKey).
type Field struct{ Name, Value string }

// Reserved reports whether a header field is reserved for relays. Underscores count as
// hyphens, because a service behind CGI or WSGI cannot distinguish them.
func Reserved(name string) bool { return Begins(name, "ringway-") }

// Begins reports whether the name of a field begins with a prefix, which must be in lower
// case. Underscores count as hyphens.
func Begins(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}

// Code states in an answer of a relay or sidecar itself who has to act.
type Code string

// The codes, with the HTTP status of a relay's answer.
const (
	CodeBadRequest       Code = "bad_request"        // 400: the request names no service, or cannot be carried
	CodeMethodNotAllowed Code = "method_not_allowed" // 405: TRACE
	CodeUnknownService   Code = "unknown_service"    // 404: no worker offers it or recently offered it
	CodeUpstreamFailed   Code = "upstream_failed"    // 502: every attempt failed
	CodeNoEndpoint       Code = "no_endpoint"        // 503: no worker offers it now
	CodeNotReady         Code = "not_ready"          // 503: this relay does not know yet which workers offer it; see Retry-After
	CodeOverloaded       Code = "overloaded"         // 503: too many requests in flight; see Retry-After
	CodeBlocked          Code = "blocked"            // 403: the operator has blocked the caller or the service
	CodeClientLimit      Code = "client_limit"       // 429: too many requests of this client in flight; see Retry-After
	CodeRateLimited      Code = "rate_limited"       // 429: more requests per second than a limit allows; see Retry-After
	CodeTimeout          Code = "timeout"            // 504: no answer in time
	CodeExhausted        Code = "relay_exhausted"    // 503: this relay could open no connection; see Retry-After
	CodeCircuitOpen      Code = "circuit_open"       // 503: the caller's requests failed too often; see Retry-After
)

// MaxCaller is the length in bytes of the longest name of a caller: a certificate with a longer one is
// refused, and what a trusted proxy names is cut.
const MaxCaller = 256

// ReplayLimit is how many bytes of a body are kept so that it can be sent again. A sidecar
// reads up to as many before it reports that it sent nothing.
const ReplayLimit = 16 << 10

// GoAway is net/http's error, which has no type, for a request over HTTP/2 that the peer
// did not process because it had announced that it takes no more requests.
const GoAway = "http2: Transport received Server's graceful shutdown GOAWAY"

// DrainTimeout is how long a member that stops waits for requests in flight, by default: longer
// than requests take, and as long as service managers wait before they kill a process.
const DrainTimeout = 30 * time.Second

type keyOfKey struct{}

// WithKey returns a context whose requests have a key. Clients and routers of Go programs share
// it, so a request keeps its key when it takes the other way.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfKey{}, key)
}

// KeyOf returns the key of WithKey, empty without one.
func KeyOf(ctx context.Context) string {
	key, _ := ctx.Value(keyOfKey{}).(string)
	return key
}

// Idempotent reports whether a method has the same effect once and twice (RFC 9110 §9.2.2).
func Idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}
