package xds_test

import (
	"context"
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ringway/ringway/adapters/xds"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// A control plane, a worker, and what an Envoy receives.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	// In production the node has Seeds, and Gather has its default.
	node, err := membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: "control", Role: identity.RoleObserver, BindAddr: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	plane, err := xds.New(xds.Config{Node: node, Addr: "127.0.0.1:0", Gather: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	planeDone := make(chan error, 1)
	go func() { planeDone <- plane.Run(ctx) }()

	worker, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{node.Addr()},
		Services: []advertise.Service{{Name: "echo", Address: "127.0.0.1:9003"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	workerDone := make(chan error, 1)
	go func() { workerDone <- worker.Run(ctx) }()

	conn, err := grpc.NewClient(plane.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	envoy, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	request := &discovery.DiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: resource.EndpointType, ResourceNames: []string{"echo"}}
	load := &endpoint.ClusterLoadAssignment{}
	for len(load.GetEndpoints()) == 0 { // the worker may not be known yet
		_ = envoy.Send(request) // an error is that of Recv
		response, err := envoy.Recv()
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = response.GetResources()[0].UnmarshalTo(load)
		request.VersionInfo, request.ResponseNonce = response.GetVersionInfo(), response.GetNonce()
	}
	to := load.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
	fmt.Println(load.GetClusterName(), to.GetAddress(), to.GetPortValue())

	_ = conn.Close()
	stop()
	fmt.Println(<-planeDone, <-workerDone)
	// Output:
	// echo 127.0.0.1 9003
	// <nil> <nil>
}
