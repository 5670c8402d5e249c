package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

// withDefaults checks all settings together and fills in the defaults.
func (c ResolverConfig) withDefaults() (ResolverConfig, []netip.Prefix, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.Servers = slices.Clone(c.Servers)
	for i, s := range c.Servers {
		if ip, err := netip.ParseAddr(s); err == nil {
			c.Servers[i] = net.JoinHostPort(ip.String(), "53")
		} else if a, err := netip.ParseAddrPort(s); err != nil || a.Port() == 0 {
			bad("DNS server %.80q: give IP or IP:port", s)
		}
	}
	var allowed []netip.Prefix
	for _, s := range c.AllowedCIDRs {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			bad("Invalid CIDR %.80q: give a network such as 10.0.0.0/8", s)
			continue
		}
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		allowed = append(allowed, prefix.Masked())
	}
	for _, s := range c.InternalSuffixes {
		if _, err := checkName(strings.Trim(s, ".")); err != nil {
			bad("internal suffix %.80q: %w", s, err)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"query timeout", c.Timeout}, {"cache TTL", c.CacheTTL}, {"largest TTL", c.MaxTTL}, {"negative TTL", c.NegativeTTL}, {"change window", c.ChangeWindow}} {
		if d.value < 0 {
			bad("%s %v: must not be negative", d.name, d.value)
		}
	}
	if c.MaxQueries < 0 {
		bad("concurrent queries %d: must not be negative", c.MaxQueries)
	}
	if c.MaxChanges < 0 {
		bad("changes in a window %d: must not be negative", c.MaxChanges)
	}

	c.ResolvConf = cmp.Or(c.ResolvConf, "/etc/resolv.conf")
	c.HostsFile = cmp.Or(c.HostsFile, "/etc/hosts")
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	c.MaxQueries = cmp.Or(c.MaxQueries, 10)
	c.CacheTTL = cmp.Or(c.CacheTTL, 30*time.Second)
	c.MaxTTL = cmp.Or(c.MaxTTL, 5*time.Minute)
	c.NegativeTTL = cmp.Or(c.NegativeTTL, 30*time.Second)
	c.MaxChanges = cmp.Or(c.MaxChanges, 5)
	c.ChangeWindow = cmp.Or(c.ChangeWindow, 5*time.Minute)
	if len(c.InternalSuffixes) == 0 {
		c.InternalSuffixes = defaultInternalSuffixes
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c, allowed, errors.Join(errs...)
}
