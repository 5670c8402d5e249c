package advertise_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
)

// A service advertises itself while it runs, and takes its offer back when it
// stops. The relay that it knows as its seed is in this process, too, and tells
// what it sees.
func ExampleAdvertiser() {
	relay, stopRelay, err := startRelay()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stopRelay()

	// From here it is the service's own code.
	advertiser, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "prod", Environment: "eu", ID: "echo-1", BindAddr: "127.0.0.1:0",
		Seeds:      []string{relay.addr},
		Services:   []advertise.Service{{Name: "echo", Address: "127.0.0.1:8080"}},
		DrainDelay: time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = advertiser.Run(ctx) })

	seen := relay.watch("echo")
	fmt.Println("the relay sees:", <-seen)
	stop()
	fmt.Println("the relay sees:", <-seen)
	running.Wait()
	fmt.Println("the relay sees:", <-seen)
	// Output:
	// the relay sees: echo-1 at 127.0.0.1:8080, ready
	// the relay sees: echo-1 at 127.0.0.1:8080, draining
	// the relay sees: discover "echo": no endpoint: all of its workers are gone
}

// seedRelay is as much of a relay as an advertiser needs: a member to join.
type seedRelay struct {
	addr  string
	watch func(service string) <-chan string
}

func startRelay() (relay seedRelay, stop func(), err error) {
	node, err := membership.New(membership.Config{
		Cluster: "prod", Environment: "eu", ID: "relay-1", Role: membership.RoleRelay, BindAddr: "127.0.0.1:0",
	})
	if err != nil {
		return relay, nil, err
	}
	catalogue, err := advertise.New(advertise.Config{Gossip: node})
	if err != nil {
		return relay, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait(); _ = node.Close() }
	if err := node.Start(ctx); err != nil {
		stop()
		return relay, nil, err
	}
	running.Go(func() { _ = catalogue.Run(ctx) })
	// watch tells of a service's endpoint whenever it has changed.
	watch := func(service string) <-chan string {
		changes := make(chan string, 16)
		running.Go(func() {
			last := ""
			for view := range catalogue.Watch(ctx) {
				if !view.Known(service) {
					continue
				}
				now := ""
				for e := range view.Endpoints(service).All() {
					now = fmt.Sprintf("%s at %s, %s", e.NodeID, e.Address, e.State)
				}
				if _, err := view.Discover(service); err != nil && now == "" {
					now = err.Error()
				}
				if now != last {
					changes <- now
				}
				last = now
			}
		})
		return changes
	}
	return seedRelay{node.Addr(), watch}, stop, nil
}
