// A relay of your own: it finds the workers of one service by gossip, connects
// to its slice of them, and sends each request to the better of two.
package main

import (
	"context"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
)

func main() {
	ctx, epoch := context.Background(), time.Now()
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	node, err := membership.New(membership.Config{
		Cluster: "shop", Environment: "dev", ID: "my-relay", Role: membership.RoleRelay,
		BindAddr: "127.0.0.1:7450", Seeds: []string{"127.0.0.1:7400"},
	})
	must(err)
	catalogue, err := advertise.New(advertise.Config{Gossip: node})
	must(err)
	balancer, err := selection.NewBalancer(selection.DefaultConfig())
	must(err)
	must(node.Start(ctx))
	go func() { must(catalogue.Run(ctx)) }()
	go func() { // every change of members or offers: a new plan, a new range
		for view := range catalogue.Watch(ctx) {
			must(balancer.Update(mySlice(view), selection.Instant(time.Since(epoch))))
		}
	}()
	must(http.ListenAndServe("127.0.0.1:7460", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pick, err := balancer.Pick(selection.Instant(time.Since(epoch)), nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		outcome, proxy := selection.Success, httputil.NewSingleHostReverseProxy(pick.Value().(*url.URL))
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			outcome = selection.Failure
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
		proxy.ServeHTTP(w, r)
		balancer.Done(pick, selection.Instant(time.Since(epoch)), outcome)
	})))
}

// mySlice is the range of this relay: which workers of "echo" it connects to.
func mySlice(view *advertise.View) (endpoints []selection.Endpoint) {
	var relays, workers []string
	addresses := map[string]string{}
	for _, e := range view.Endpoints("echo") {
		workers, addresses[e.NodeID] = append(workers, e.NodeID), e.Address
	}
	if view.Members() != nil {
		for _, m := range view.Members().WithRole(membership.RoleRelay) {
			relays = append(relays, m.ID)
		}
	}
	plan, err := affinity.NewPlan(affinity.PlanConfig{Service: "echo", Relays: relays, Workers: workers, WorkersOrdered: true})
	if err != nil {
		return nil // no workers yet
	}
	index, _ := plan.Index("my-relay")
	assignments, _ := plan.Assignments(index)
	for _, a := range assignments {
		endpoints = append(endpoints, selection.Endpoint{ID: a.Worker, Weight: a.Weight, Value: &url.URL{Scheme: "http", Host: addresses[a.Worker]}})
	}
	return endpoints
}
