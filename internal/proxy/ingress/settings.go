package ingress

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/requestlog"
)

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
	// Blocks are refused. With FromRelay or Local they are not read: the relay that has the client decides.
	Blocks []Block
	// RateLimits bound the requests per second. With Local they are not read.
	RateLimits []RateLimit
	// MaxAttempts is how many endpoints one request may try, 1 to 8.
	MaxAttempts int
	// RetryBudget is the share of the requests of each service that may be retried, 0 to 1.
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
	// OnlyServices are the services that clients may reach. Default: all. With FromRelay it is not
	// read: the relay that forwards a request decides.
	OnlyServices []string
	// TrustedProxies are the networks whose fields about a request's origin are trusted.
	// Default: none; such fields of clients are replaced or dropped.
	TrustedProxies []netip.Prefix
	// ExposeRouteHeaders adds relay, endpoint and attempts to answers, and details to this
	// relay's own answers. With FromRelay it is not read: the relay that forwards a request
	// decides, by wire.ExposeHeader.
	ExposeRouteHeaders bool
	// Via adds this relay to the field Via of requests. With FromRelay or Local it is not read: the relay
	// that has the client adds itself.
	Via bool
	// Record decides which records of requests are kept and what they contain.
	Record requestlog.Policy
}

// ForClients reports whether clients may reach a service: OnlyServices has it, or is empty.
func (r *Requests) ForClients(service string) bool {
	return len(r.OnlyServices) == 0 || slices.Contains(r.OnlyServices, service)
}
