package ringwaygrpc_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// A program that calls a service of the cluster.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	// In production the node has Seeds and the role of an observer; this one is the seed of the worker.
	node, err := membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: "caller", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := router.New(router.Config{Node: node, PickOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	routerDone := make(chan error, 1)
	go func() { routerDone <- r.Run(ctx) }()

	// A worker with the service.
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	worker, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "billing-1", BindAddr: "127.0.0.1:0", Seeds: []string{node.Addr()},
		Services: []advertise.Service{{Name: "billing", Address: socket.Addr().String(), Protocol: advertise.H2C}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	workerDone := make(chan error, 1)
	go func() { workerDone <- worker.Serve(ctx, socket, server) }()

	conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: r, Service: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	fmt.Println(answer.GetStatus(), err)

	fmt.Println(conn.Close())
	stop()
	fmt.Println(<-workerDone, <-routerDone)
	// Output:
	// SERVING <nil>
	// <nil>
	// <nil> <nil>
}
