// A relay of your own: it finds the workers of the service "echo" by gossip and
// sends each request to the better of two of its slice.
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
	ctx, began := context.Background(), time.Now()
	now := func() selection.Instant { return selection.Instant(time.Since(began)) }
	node, err := membership.New(membership.Config{
		Cluster: "shop", Environment: "dev", ID: "my-relay", Role: membership.RoleRelay,
		BindAddr: "127.0.0.1:7450", Seeds: []string{"127.0.0.1:7400"},
	})
	check(err)
	catalogue, err := advertise.New(advertise.Config{Gossip: node})
	check(err)
	balancer, err := selection.NewBalancer(selection.DefaultConfig())
	check(err)
	check(node.Start(ctx))
	go catalogue.Run(ctx)
	go func() {
		for view := range catalogue.Watch(ctx) { // members or offers changed
			check(balancer.Update(slice(view), now()))
		}
	}()
	check(http.ListenAndServe("127.0.0.1:7460", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pick, err := balancer.Pick(now(), nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		httputil.NewSingleHostReverseProxy(pick.Value().(*url.URL)).ServeHTTP(w, r)
		balancer.Done(pick, now(), selection.Success)
	})))
}

// slice is what this relay connects to, and the share of its traffic each gets.
func slice(view *advertise.View) (slice []selection.Endpoint) {
	plan, err := affinity.NewPlan(affinity.PlanConfig{Service: "echo", Relays: affinity.Relays(view.Relays()), Workers: affinity.Workers(view.Workers("echo"))})
	if err != nil {
		return nil // no workers yet
	}
	index, _ := plan.Index("my-relay")
	assignments, _ := plan.Assignments(index)
	for _, a := range assignments {
		e, _ := view.Endpoint("echo", a.Worker)
		slice = append(slice, selection.Endpoint{ID: a.Worker, Weight: a.Weight, Value: &url.URL{Scheme: "http", Host: e.Address}})
	}
	return slice
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
