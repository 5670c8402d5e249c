package xds

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/presence"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// relay takes sessions of attached workers, as relays do. It returns its peer address.
func (c *cluster) relay(id string) string {
	c.t.Helper()
	node, err := membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: id, Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", Seeds: []string{c.node.Addr()}, LeaveTimeout: time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	fleet := presence.New(node, slog.New(slog.DiscardHandler), registry)
	catalogue, err := advertise.New(advertise.Config{Gossip: fleet})
	if err != nil {
		c.t.Fatal(err)
	}
	server := presence.NewServer(presence.ServerConfig{Fleet: fleet, RowSize: func() int { return 1 }, Logger: slog.New(slog.DiscardHandler), Registerer: registry})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.members.Go(func() { _ = fleet.Run(ctx) })
	c.members.Go(func() { _ = catalogue.Run(ctx) }) // takes the records
	c.members.Go(func() { _ = server.Run(ctx) })
	c.members.Go(func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			reader := bufio.NewReader(conn)
			if _, err := http.ReadRequest(reader); err == nil {
				_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + session.Protocol + "\r\n\r\n"))
				server.Go(conn, reader)
			}
		}
	})
	if err := node.Start(ctx); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = socket.Close(); server.Close(); stop(); _ = node.Close() })
	return socket.Addr().String()
}

func TestAttachedWorkersAreEndpointsOfEnvoys(t *testing.T) {
	c := start(t, nil)
	peer := c.relay("r1")
	gossiping := c.worker(1, "echo")
	attached, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "w2", Attach: []string{peer}, DrainDelay: time.Millisecond,
		Services: []advertise.Service{{Name: "echo", Address: "127.0.2.1:80"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(c.end)
	c.members.Go(func() {
		if err := attached.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	e := c.envoy(&core.Node{Id: "envoy-0"}, insecure.NewCredentials(), "echo")
	has := func(workers ...string) func() bool {
		return func() bool {
			got := endpointsOf(t, e.has["echo"])
			for _, w := range workers {
				if got[w] == nil {
					return false
				}
			}
			return len(got) == len(workers)
		}
	}
	e.until("both workers", has("w1", "w2"))
	leave()
	e.until("the one that gossips", has("w1"))
	gossiping.leave()
}
