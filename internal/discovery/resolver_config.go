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

// ResolverConfig describes a Resolver; membership/discovery, which converts its own into this
// one, documents each field.
type ResolverConfig struct {
	Servers               []string
	ResolvConf            string
	HostsFile             string
	Timeout               time.Duration
	MaxQueries            int
	CacheTTL              time.Duration
	MaxTTL                time.Duration
	NegativeTTL           time.Duration
	AllowedCIDRs          []string
	BlockPrivateForPublic bool
	InternalSuffixes      []string
	ReportOnly            bool
	IgnoreChanges         bool
	MaxChanges            int
	ChangeWindow          time.Duration
	RejectFlux            bool
	Now                   func() time.Time
	Rand                  func() float64
	Logger                *slog.Logger
	Registerer            prometheus.Registerer
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
