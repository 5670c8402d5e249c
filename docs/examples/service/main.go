// A Go service that offers "echo" without an agent, and drains before it stops.
package main

import (
	"context"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/ringway/ringway/advertise"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	advertiser, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: "echo-1",
		BindAddr: "127.0.0.1:7451", Seeds: []string{"127.0.0.1:7400"},
		Services: []advertise.Service{{Name: "echo", Address: "127.0.0.1:9003"}},
		OnEvent:  func(e advertise.Event) { log.Println(e.Kind, e.Cause) },
	})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:9003", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("hello from echo-1\n"))
	})}
	go func() { log.Print(server.ListenAndServe()) }()
	if err := advertiser.Run(ctx); err != nil { // on a signal, Run drains and then leaves the cluster
		log.Print(err)
	}
	_ = server.Shutdown(context.Background())
}
