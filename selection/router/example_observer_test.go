package router_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// A program that sends requests to workers itself, without a part in the plans of relays.
func Example_observer() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	node, err := membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: "checkout-1", Role: identity.RoleObserver, BindAddr: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls, err := router.New(router.Config{Node: node})
	if err != nil {
		fmt.Println(err)
		return
	}
	callsDone := make(chan error, 1)
	go func() { callsDone <- calls.Run(ctx) }()

	// A worker with the service. In production it joins a relay.
	hello, err := loadgen.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello from echo-1") }))
	if err != nil {
		fmt.Println(err)
		return
	}
	worker, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{node.Addr()},
		Services: []advertise.Service{{Name: "echo", Address: hello.Addr()}}, DrainDelay: time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	workerDone := make(chan error, 1)
	go func() { workerDone <- worker.Run(ctx) }()

	client := &http.Client{Transport: calls}
	resp, err := client.Get("http://echo/")
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Println(resp.Status, string(body))

	stop()
	fmt.Println(<-callsDone, <-workerDone)
	hello.Die()
	// Output:
	// 200 OK hello from echo-1
	// <nil> <nil>
}
