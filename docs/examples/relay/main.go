// This relay finds the workers of the service "echo" by gossip and sends each request
// to the better of two workers of its range.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
)

const id, service = "my-relay", "echo"

func main() {
	ctx := context.Background()
	node, err := membership.New(membership.Config{
		Cluster: "shop", Environment: "dev", ID: id, Role: membership.RoleRelay,
		BindAddr: "127.0.0.1:7450", Seeds: []string{"127.0.0.1:7400"},
	})
	check(err)
	catalogue, err := advertise.New(advertise.Config{Gossip: node})
	check(err)
	relay, err := newRelay()
	check(err)
	check(node.Start(ctx))
	go catalogue.Run(ctx)
	go relay.refresh(ctx)
	go func() {
		for view := range catalogue.Watch(ctx) { // members or endpoints changed
			plan, _ := affinity.NewPlan(affinity.PlanConfig{ // none without workers
				Service: service, Relays: affinity.Relays(view.Relays()), Workers: affinity.Workers(view.Workers(service)),
			})
			relay.follow(plan, view.Endpoints(service))
		}
	}()
	check(http.ListenAndServe("127.0.0.1:7460", relay))
}

// relay is the handler of all requests.
type relay struct {
	balancer *selection.Balancer
	proxy    *httputil.ReverseProxy // shared, because it keeps the connections
	began    time.Time
	servedBy atomic.Pointer[[]string] // the relays that serve the service, if this one does not
}

func newRelay() (*relay, error) {
	balancer, err := selection.NewBalancer(selection.DefaultConfig())
	r := &relay{balancer: balancer, began: time.Now()}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.ResponseHeaderTimeout = 64, 10*time.Second
	r.proxy = &httputil.ReverseProxy{Transport: transport, Rewrite: rewrite, ModifyResponse: r.answered, ErrorHandler: failed}
	return r, err
}

// now is the balancer's clock.
func (r *relay) now() selection.Instant { return selection.Instant(time.Since(r.began)) }

// refresh lets evicted workers return.
func (r *relay) refresh(ctx context.Context) {
	for tick := time.NewTicker(250 * time.Millisecond); ctx.Err() == nil; {
		select {
		case <-tick.C:
			r.balancer.Refresh(r.now())
		case <-ctx.Done():
		}
	}
}

// follow uses the workers that the plan assigns to this relay.
func (r *relay) follow(plan *affinity.Plan, offers *advertise.Endpoints) {
	var slice []selection.Endpoint
	var servedBy *[]string
	if plan != nil {
		index, affine := plan.Index(id)
		if relays := plan.Affine(); !affine {
			servedBy = &relays
		}
		assignments, _ := plan.Assignments(index) // none if the relay is not affine
		for _, a := range assignments {
			slice = append(slice, selection.Endpoint{ID: a.Worker, Weight: a.Weight, Value: offers.Of(a.Worker).Address})
		}
	}
	r.servedBy.Store(servedBy)
	if err := r.balancer.Update(slice, r.now()); err != nil {
		log.Print("keep the old slice: ", err)
	}
}

// attempt is one request's worker and result.
type attempt struct {
	pick     selection.Pick
	outcome  selection.Outcome
	answered bool
}

type attemptKey struct{}

func of(ctx context.Context) *attempt { return ctx.Value(attemptKey{}).(*attempt) }

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if others := r.servedBy.Load(); others != nil {
		http.Error(w, fmt.Sprintf("%s does not serve %s; ask %s", id, service, strings.Join(*others, ", ")), http.StatusMisdirectedRequest)
		return
	}
	pick, err := r.balancer.Pick(r.now(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	a := &attempt{pick: pick, outcome: selection.Failure}
	ctx := context.WithValue(req.Context(), attemptKey{}, a)
	defer func() { // also when the proxy panics because a body broke off
		if ctx.Err() != nil { // the client left: no failure of the worker
			a.outcome = selection.Cancelled
		}
		r.balancer.Done(a.pick, r.now(), a.outcome)
	}()
	r.proxy.ServeHTTP(w, req.WithContext(ctx))
	if a.answered {
		a.outcome = selection.Success // answered has reported the status
	}
}

func rewrite(p *httputil.ProxyRequest) {
	p.SetURL(&url.URL{Scheme: "http", Host: of(p.In.Context()).pick.Value().(string)})
	p.SetXForwarded()
}

// answered reports when an answer begins, because its body may take long.
func (r *relay) answered(resp *http.Response) error {
	outcome := selection.Success
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		outcome = selection.Shed
	case resp.StatusCode >= http.StatusInternalServerError:
		outcome = selection.Failure
	}
	a := of(resp.Request.Context())
	a.pick, a.answered = r.balancer.Answered(a.pick, r.now(), outcome), true
	return nil
}

// failed answers if the worker did not.
func failed(w http.ResponseWriter, req *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
