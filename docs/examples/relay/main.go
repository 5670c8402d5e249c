// This relay finds the workers of the service "echo" by gossip and sends each request
// to the better of two workers of its range.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/signal"
	"syscall"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, "127.0.0.1:7460", membership.Config{
		Cluster: "local", Environment: "local", ID: "my-relay", Role: identity.RoleRelay,
		BindAddr: "127.0.0.1:7450", ForwardAddr: "127.0.0.1:7452", Seeds: []string{"127.0.0.1:7400"},
	}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, member membership.Config) error {
	node, err := membership.New(member)
	if err != nil {
		return err
	}
	relay, err := router.New(router.Config{Node: node})
	if err != nil {
		return errors.Join(err, node.Close())
	}
	server := &http.Server{Addr: addr, Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "echo"}) // the service
			r.SetXForwarded()
		},
		Transport: relay, ErrorHandler: router.ServeError,
	}}
	return relay.Serve(ctx, server)
}
