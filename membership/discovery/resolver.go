package discovery

import "github.com/ringway/ringway/internal/discovery"

// Resolver looks names up.
type Resolver = discovery.Resolver

// ResolverConfig describes a Resolver: Servers or ResolvConf, HostsFile, the limits Timeout,
// MaxQueries, CacheTTL, MaxTTL and NegativeTTL, and the rules AllowedCIDRs,
// BlockPrivateForPublic and RejectFlux for the addresses of answers. The zero value of each
// field is a default; the zero value of the whole is the configuration of the machine.
type ResolverConfig = discovery.ResolverConfig

// NewResolver checks the configuration. It looks nothing up.
func NewResolver(cfg ResolverConfig) (*Resolver, error) { return discovery.NewResolver(cfg) }
