package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

// newNode returns a node that is not started.
func newNode(id string, role identity.Role) (*membership.Node, error) {
	return membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: id, Role: role, BindAddr: "127.0.0.1:0"})
}

// A program with a protocol of its own picks, connects and reports, and finds out why there is
// no endpoint.
func ExampleRouter_Pick() {
	node, err := newNode("calls-1", identity.RoleObserver)
	if err != nil {
		fmt.Println(err)
		return
	}
	calls, err := router.New(router.Config{Node: node, PickOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 2)
	go func() { done <- calls.Run(ctx) }()
	worker, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{node.Addr()},
		Services: []advertise.Service{{Name: "echo", Address: "127.0.0.1:9001", Version: "7"}}, DrainDelay: time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { done <- worker.Run(ctx) }()

	for { // Pick does not wait for the first worker
		endpoints, changed := calls.Endpoints("echo")
		if len(endpoints) > 0 {
			break
		}
		<-changed
	}
	pick, err := calls.Pick(ctx, "echo", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pick.Address(), pick.Endpoint().Version)
	pick.Done(selection.Success)

	_, err = calls.Pick(ctx, "billing", "")
	var why *router.Error
	switch {
	case errors.Is(err, router.ErrUnknownService):
		errors.As(err, &why)
		fmt.Println(why.Service, why.Code)
	case errors.Is(err, router.ErrNotReady):
		fmt.Println("try again later")
	case errors.Is(err, router.ErrElsewhere):
		fmt.Println("a relay of the error's text serves it, and RoundTrip forwards to it")
	}

	stop()
	fmt.Println(<-done, <-done)
	// Output:
	// 127.0.0.1:9001 7
	// billing unknown_service
	// <nil> <nil>
}

// The operator of a program limits the requests to one service, and the program finds out why a
// request has failed.
func ExampleConfig_policies() {
	node, err := newNode("reports-1", identity.RoleObserver)
	if err != nil {
		fmt.Println(err)
		return
	}
	limits, err := advertise.ParsePolicy("request-timeout=50ms;retry=connect") // the value of a flag
	if err != nil {
		fmt.Println(err)
		return
	}
	reports, err := router.New(router.Config{Node: node, Policies: map[string]advertise.Policy{"reports": limits}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reports.Run(ctx) }()

	client := &http.Client{Transport: reports}
	_, err = client.Get("http://reports/") // it waits for the first worker, 50 ms and not 30 s
	switch {
	case errors.Is(err, router.ErrUnknownService):
		fmt.Println("the name is wrong, or no worker has ever offered it")
	case errors.Is(err, router.ErrNotReady):
		fmt.Println("no worker of any service is known yet")
	case errors.Is(err, selection.ErrNoEndpoint):
		fmt.Println("its workers have left, drain or are evicted")
	case errors.Is(err, selection.ErrFull):
		fmt.Println("its workers have as many requests as they take")
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("no worker has answered in time")
	}

	stop()
	fmt.Println(<-done)
	// Output:
	// no worker of any service is known yet
	// <nil>
}

// A program that cannot start after all releases what New has bound.
func ExampleRouter_Close() {
	node, err := newNode("gate-1", identity.RoleGate)
	if err != nil {
		fmt.Println(err)
		return
	}
	gate, err := router.New(router.Config{Node: node})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(gate.Close()) // in place of Run or Serve
	// Output: <nil>
}
