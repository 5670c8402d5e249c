package discovery_test

import (
	"fmt"

	"github.com/ringway/ringway/membership/discovery"
)

// A resolver that uses only addresses of one network.
func Example() {
	_, err := discovery.NewResolver(discovery.ResolverConfig{Servers: []string{"10.0.0.53"}, AllowedCIDRs: []string{"10.0.0.0/8"}})
	fmt.Println(err)
	_, err = discovery.NewResolver(discovery.ResolverConfig{AllowedCIDRs: []string{"10.0.0.0/33"}})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}
