package identity_test

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// A relay from another environment knocks. Without TLS: the decision alone.
func ExamplePolicy() {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	source, err := authority.Source(identity.Claims{
		Role: identity.RoleWorker, Cluster: "shop", Environment: "prod", Node: "worker-1",
	}, time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := source.Policy(identity.DataPlane)
	peer := identity.Claims{Role: identity.RoleRelay, Cluster: "shop", Environment: "staging", Node: "relay-7"}
	fmt.Println(policy.Check(peer))
	peer.Environment = "prod"
	fmt.Println(policy.Check(peer))
	peer.Role = identity.RoleClient
	fmt.Println(policy.Check(peer))
	// Output:
	// environment mismatch: ours "prod", theirs "staging" (relay-7): give both a certificate of one environment
	// <nil>
	// connection not allowed: ours "worker", theirs "client": a client may connect to: gate, relay (relay-7)
}
