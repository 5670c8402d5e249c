package membership_test

import (
	"context"
	"fmt"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Two members of one cluster find each other: the second knows the first as its
// seed.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	relay, err := membership.New(membership.Config{
		Cluster: "prod", Environment: "eu", ID: "relay-1", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer relay.Close()
	worker, err := membership.New(membership.Config{
		Cluster: "prod", Environment: "eu", ID: "worker-1", Role: identity.RoleWorker, BindAddr: "127.0.0.1:0",
		Seeds: []string{relay.Addr()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer worker.Close()

	if err := relay.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := worker.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}

	// Watch delivers the current snapshot, then the newest one after each change.
	for s := range relay.Watch(ctx) {
		if len(s.Members()) == 2 {
			for _, m := range s.Members() {
				fmt.Println(m.ID, m.Role)
			}
			return
		}
	}
	// Output:
	// relay-1 relay
	// worker-1 worker
}
