package discovery

import "github.com/ringway/ringway/internal/discovery"

// Resolver looks names up and caches the results, by its methods
//
//	Stats() CacheStats       counts of the names in the cache, and of how lookups were answered
//	Invalidate(name string)  removes everything cached about a name: the next lookup asks again
//	LookupHost(ctx, name, mode) (Result, error)  what nodes and clients call
//
// of which a program needs only the first two.
type Resolver = discovery.Resolver

// ResolverConfig describes a Resolver. The zero value uses the configuration of the machine. The
// documentation of its fields is in the internal package, which resolves the names of nodes, too.
type ResolverConfig = discovery.ResolverConfig

// NewResolver checks the configuration and reports all problems together. It makes no query
// and reads no file.
func NewResolver(cfg ResolverConfig) (*Resolver, error) {
	return discovery.NewResolver(cfg)
}
