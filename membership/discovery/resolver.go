package discovery

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/discovery"
)

// Resolver looks names up and caches the results, by its methods
//
//	Stats() CacheStats       counts of the names in the cache, and of how lookups were answered
//	Invalidate(name string)  removes everything cached about a name: the next lookup asks again
//	LookupHost(ctx, name, mode) (Result, error)  what nodes and clients call
//
// of which a program needs only the first two.
type Resolver = discovery.Resolver

// ResolverConfig describes a Resolver. The zero value uses the configuration of the machine.
type ResolverConfig struct {
	// Servers are queried in this order, each an IP or IP:port (default port 53). Names are then
	// looked up without a search list. Default: the servers and the search list of ResolvConf.
	Servers []string
	// ResolvConf is read before each lookup that the cache cannot answer, so that changes take
	// effect immediately. Default /etc/resolv.conf; if it does not exist or contains no server,
	// the local machine is queried, as in resolv.conf(5).
	ResolvConf string
	// HostsFile is read before DNS is queried. Default /etc/hosts; a missing file contains no
	// names.
	HostsFile string

	// Timeout limits one query to one server, including TCP after truncation. Default 2 s.
	Timeout time.Duration
	// MaxQueries limits the queries in flight, over all names. Default 10.
	MaxQueries int
	// CacheTTL is how long an answer without a TTL is valid, that is, one from the hosts file:
	// one second at least, MaxTTL at most. Default 30 s.
	CacheTTL time.Duration
	// MaxTTL is the longest time for which any answer is valid. Default 5 min.
	MaxTTL time.Duration
	// NegativeTTL is how long a failure is valid. It does not grow. A shorter time in the SOA
	// record of a negative answer takes precedence. Default 30 s.
	NegativeTTL time.Duration

	// AllowedCIDRs, if not empty, are the only networks from which addresses of an answer are
	// used; others are dropped.
	AllowedCIDRs []string
	// BlockPrivateForPublic drops private, loopback, link-local and shared
	// addresses in DNS answers for public names: DNS rebinding.
	BlockPrivateForPublic bool
	// InternalSuffixes are the suffixes of names that are not public. Default: .local
	// .internal .svc .cluster.local .corp .home .lan .private .test .home.arpa
	// .localhost. A name without a dot is never public.
	InternalSuffixes []string
	// ReportOnly counts and logs addresses that AllowedCIDRs or BlockPrivateForPublic would
	// drop, but uses them, to test a rule.
	ReportOnly bool

	// IgnoreChanges turns off the detection of fast changes.
	IgnoreChanges bool
	// MaxChanges is how often the whole set of addresses of a name may change within
	// ChangeWindow. Default 5. The number of addresses does not matter.
	MaxChanges int
	// ChangeWindow is the time in which changes are counted. Default 5 min.
	ChangeWindow time.Duration
	// RejectFlux refuses answers that change more often, and keeps the last answer before. By
	// default such changes are only logged and counted, because a rolling restart looks the
	// same.
	RejectFlux bool

	// Now is the clock of the cache. Default time.Now. Timeouts of queries use real time.
	Now func() time.Time
	// Rand returns numbers in [0, 1) for the order of SRV targets. It must be safe for concurrent
	// use. Default math/rand/v2.
	Rand func() float64
	// Logger receives a line when stale answers, dropped addresses or fast changes begin. Default:
	// discard.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: none.
	Registerer prometheus.Registerer
}

// NewResolver checks the configuration and reports all problems together. It makes no query
// and reads no file.
func NewResolver(cfg ResolverConfig) (*Resolver, error) {
	return discovery.NewResolver(discovery.ResolverConfig(cfg))
}
