// A Go service that offers "echo" without an agent, and drains before it stops.
package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/ringway/ringway/advertise"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, advertise.AdvertiserConfig{
		Cluster: "local", Environment: "local", ID: "echo-1",
		BindAddr: "127.0.0.1:7451", Seeds: []string{"127.0.0.1:7400"},
		Services: []advertise.Service{{Name: "echo", Address: "127.0.0.1:9003"}},
	}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, cfg advertise.AdvertiserConfig) error {
	socket, err := net.Listen("tcp", cfg.Services[0].Address)
	if err != nil {
		return err
	}
	advertiser, err := advertise.NewAdvertiser(cfg)
	if err != nil {
		return err
	}
	return advertiser.Serve(ctx, socket, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello from echo-1\n")
	})})
}
