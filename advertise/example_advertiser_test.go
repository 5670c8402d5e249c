package advertise_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// A service advertises itself while it runs, moves to another port, and takes its offer back
// when it stops. The relay that it knows as its seed is in this process, too, and prints what it
// sees.
func ExampleAdvertiser() {
	relay, stopRelay, err := startRelay()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stopRelay()

	// From here it is the service's own code.
	advertised := make(chan struct{})
	advertiser, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "prod", Environment: "eu", ID: "echo-1", BindAddr: "127.0.0.1:0",
		Seeds:      []string{relay.addr},
		Services:   []advertise.Service{{Name: "echo", Address: "127.0.0.1:8080"}},
		DrainDelay: 10 * time.Millisecond,
		OnEvent: func(e advertise.Event) {
			switch {
			case e.Kind == advertise.EventAdvertised:
				close(advertised) // the first time; the next is EventReadvertised
			case errors.Is(e.Cause, advertise.ErrAlone):
				fmt.Println("no relay is left:", e.Cause)
			case e.Kind == advertise.EventError:
				fmt.Println("no relay can be reached:", e.Cause)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = advertiser.Run(ctx) })

	<-advertised
	seen := relay.watch("echo")
	fmt.Println("the relay sees:", <-seen)
	if err := advertiser.Set(advertise.Service{Name: "echo", Address: "127.0.0.1:8081"}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("the relay sees:", <-seen)
	advertiser.Drain() // Run does it when ctx ends; a service may begin earlier
	fmt.Println("the relay sees:", <-seen)
	stop()
	running.Wait()
	fmt.Println("the relay sees:", <-seen)
	// Output:
	// the relay sees: echo-1 at 127.0.0.1:8080, ready
	// the relay sees: echo-1 at 127.0.0.1:8081, ready
	// the relay sees: echo-1 at 127.0.0.1:8081, draining
	// the relay sees: no endpoint
}

// A program that cannot serve after all releases the address of its gossip.
func ExampleAdvertiser_Close() {
	advertiser, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "prod", Environment: "eu", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{"127.0.0.1:7400"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := net.Listen("tcp", "127.0.0.1:none"); err != nil {
		fmt.Println(advertiser.Close()) // in place of Run or Serve
	}
	// Output: <nil>
}

// seedRelay is as much of a relay as an advertiser needs: a member to join.
type seedRelay struct {
	addr  string
	watch func(service string) <-chan string
}

func startRelay() (relay seedRelay, stop func(), err error) {
	node, err := membership.New(membership.Config{
		Cluster: "prod", Environment: "eu", ID: "relay-1", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0",
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
	// watch sends the endpoint of a service after each change.
	watch := func(service string) <-chan string {
		changes := make(chan string, 16)
		running.Go(func() {
			last := ""
			for view := range catalogue.Watch(ctx) {
				now := "no endpoint"
				for e := range view.Endpoints(service).All() {
					now = fmt.Sprintf("%s at %s, %s", e.NodeID, e.Address, e.State)
				}
				if now != last && (last != "" || now != "no endpoint") {
					changes <- now
					last = now
				}
			}
		})
		return changes
	}
	return seedRelay{node.Addr(), watch}, stop, nil
}
