package router_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// A program that sends requests to a service, as a relay of its own.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	// The relay. In production its node has Seeds.
	node, err := membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: "my-relay", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", ForwardAddr: "127.0.0.1:7452"})
	if err != nil {
		fmt.Println(err)
		return
	}
	relay, err := router.New(router.Config{Node: node})
	if err != nil {
		fmt.Println(err)
		return
	}
	relayDone := make(chan error, 1)
	go func() { relayDone <- relay.Run(ctx) }()

	// A worker with the service.
	hello, err := loadgen.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello from echo-1") }))
	if err != nil {
		fmt.Println(err)
		return
	}
	worker, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{node.Addr()},
		Services: []advertise.Service{{Name: "echo", Address: hello.Addr()}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	workerDone := make(chan error, 1)
	go func() { workerDone <- worker.Run(ctx) }()

	client := &http.Client{Transport: relay}
	resp, err := client.Get("http://echo/") // it waits for the first worker
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Println(resp.Status, string(body))

	stop()
	fmt.Println(<-relayDone, <-workerDone)
	hello.Die()
	// Output:
	// 200 OK hello from echo-1
	// <nil> <nil>
}
