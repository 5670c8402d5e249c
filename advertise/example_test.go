package advertise_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// A worker offers a service; the relay that it joined sees the endpoint, and the
// drain after it.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	// start makes a member and its catalogue, on real gossip over loopback.
	start := func(id string, role identity.Role, seeds ...string) (*membership.Node, *advertise.Catalogue, error) {
		node, err := membership.New(membership.Config{
			Cluster: "prod", Environment: "eu", ID: id, Role: role, BindAddr: "127.0.0.1:0", Seeds: seeds,
		})
		if err != nil {
			return nil, nil, err
		}
		catalogue, err := advertise.New(advertise.Config{Gossip: node}) // before the node starts
		if err != nil {
			return node, nil, err
		}
		if err := node.Start(ctx); err != nil {
			return node, nil, err
		}
		running.Go(func() { _ = catalogue.Run(ctx) })
		return node, catalogue, nil
	}
	relayNode, relay, err := start("relay-1", identity.RoleRelay)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer relayNode.Close()
	workerNode, worker, err := start("worker-1", identity.RoleWorker, relayNode.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer workerNode.Close()

	fmt.Println(worker.Offer([]advertise.Service{{Name: "echo", Address: "echo"}}))
	if err := worker.Offer([]advertise.Service{{Name: "echo", Address: "127.0.0.1:8080"}}); err != nil {
		fmt.Println(err)
		return
	}
	seen := map[advertise.State]bool{}
	for view := range relay.Watch(ctx) {
		for e := range view.Endpoints("echo").All() {
			if seen[e.State] {
				continue // another change made this view
			}
			seen[e.State] = true
			fmt.Println(e.NodeID, e.Name, e.Address, e.Protocol, e.State)
			if e.State == advertise.Draining {
				return
			}
			worker.Drain()
		}
	}
	// Output:
	// service "echo": address "echo": address echo: missing port in address: want host:port with a port from 1 to 65535
	// worker-1 echo 127.0.0.1:8080 http1 ready
	// worker-1 echo 127.0.0.1:8080 http1 draining
}
