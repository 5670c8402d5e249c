package discovery_test

import (
	"fmt"

	"github.com/ringway/ringway/membership/discovery"
)

// A resolver that uses only addresses of one network.
func Example() {
	resolver, err := discovery.NewResolver(discovery.ResolverConfig{Servers: []string{"10.0.0.53"}, AllowedCIDRs: []string{"10.0.0.0/8"}})
	fmt.Println(err)
	resolver.Invalidate("relays.example")           // its records are known to have changed
	fmt.Println(resolver.Stats().Misses, "queries") // of the lookups of nodes and clients that share it
	_, err = discovery.NewResolver(discovery.ResolverConfig{AllowedCIDRs: []string{"10.0.0.0/33"}})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// 0 queries
	// true
}
