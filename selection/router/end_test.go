package router_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

func TestARouterThatEndsImmediatelyLeavesNothing(t *testing.T) {
	c := startCluster(t, fleet.Config{})
	made := func(addr string) (*membership.Node, *router.Router, error) {
		member := membership.Config{
			Cluster: "shop", Environment: "dev", ID: "relay-1", Role: identity.RoleRelay,
			BindAddr: "127.0.0.1:0", ForwardAddr: addr, LeaveTimeout: time.Second,
		}
		if err := c.Equip(&member); err != nil {
			t.Fatal(err)
		}
		node, err := membership.New(member)
		if err != nil {
			t.Fatal(err)
		}
		r, err := router.New(router.Config{Node: node})
		return node, r, err
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 5 {
		_, r, err := made(procs.FreeAddr(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(ended); err != nil {
			t.Error("run with a context that has ended:", err)
		}
	}
	addr := procs.FreeAddr(t)
	taken, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	node, _, err := made(addr)
	if err == nil {
		t.Error("the address is taken")
	}
	_ = node.Close()
	_, r, err := made(procs.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Run(t.Context()); err == nil {
		t.Error("a router that is closed ran")
	}
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := r.WaitReady(limited); err == nil || limited.Err() != nil {
		t.Errorf("ready after the end: %v", err)
	}
	req, _ := http.NewRequestWithContext(limited, http.MethodGet, "http://echo/", nil)
	if _, err := r.RoundTrip(req); !errors.Is(err, router.ErrNotReady) || limited.Err() != nil {
		t.Errorf("a request after the end: %v", err)
	}
}

func TestASecondRunHarmsNotTheFirst(t *testing.T) {
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	node, err := membership.New(membership.Config{
		Cluster: "shop", Environment: "dev", ID: "relay-2", Role: identity.RoleRelay,
		BindAddr: "127.0.0.1:0", ForwardAddr: procs.FreeAddr(t), Seeds: []string{c.Relay("relay-1").GossipAddr()}, LeaveTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := router.New(router.Config{Node: node})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	if err := r.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); err == nil {
		t.Error("a router ran twice at a time")
	}
	if err := r.WaitReady(ctx); err != nil {
		t.Error("the first run has ended:", err)
	}
	end()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

func TestAServerWithACertificateServesNoClearText(t *testing.T) {
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	member := membership.Config{
		Cluster: "shop", Environment: "dev", ID: "relay-2", Role: identity.RoleRelay,
		BindAddr: "127.0.0.1:0", ForwardAddr: procs.FreeAddr(t), Seeds: []string{c.Relay("relay-1").GossipAddr()}, LeaveTimeout: time.Second,
	}
	node, err := membership.New(member)
	if err != nil {
		t.Fatal(err)
	}
	r, err := router.New(router.Config{Node: node})
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewTLSServer(nil) // for its certificate
	defer other.Close()
	server := &http.Server{
		Addr: procs.FreeAddr(t), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		TLSConfig: &tls.Config{Certificates: other.TLS.Certificates, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, server) }()
	client := other.Client()
	procs.Await(t, "an answer over TLS", func() bool {
		resp, err := client.Get("https://" + server.Addr)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	})
	client.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
