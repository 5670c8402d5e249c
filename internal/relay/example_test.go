package relay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
)

// A relay, a worker that finds it by gossip, and a request through the relay.
func Example() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer service.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	quiet := slog.New(slog.DiscardHandler)

	rs := relay.DefaultSettings()
	rs.Cluster, rs.Environment, rs.ID = "shop", "dev", "relay-1"
	rs.GossipAddr, rs.IngressAddrs, rs.PeerAddr, rs.AdminAddr = "127.0.0.1:0", []string{"127.0.0.1:0"}, "127.0.0.1:0", "127.0.0.1:0"
	rc, _ := rs.Config(quiet, prometheus.NewRegistry())
	r, err := relay.New(rc)
	if err != nil {
		fmt.Println(err)
		return
	}
	ws := worker.DefaultSettings()
	ws.Cluster, ws.Environment, ws.ID, ws.Join = "shop", "dev", "worker-1", []string{r.GossipAddr()}
	ws.GossipAddr, ws.AdminAddr = "127.0.0.1:0", "127.0.0.1:0"
	wc, _ := ws.Config(quiet, prometheus.NewRegistry())
	wc.Services = []worker.Service{{Service: advertise.Service{Name: "greeter", Address: service.Listener.Addr().String()}}}
	w, err := worker.New(wc)
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error, 2)
	go func() { stopped <- r.Run(ctx) }()
	go func() { stopped <- w.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 1000 { // until the relay is ready, and the offer has arrived
		req, _ := http.NewRequest("GET", "http://"+r.IngressAddr(), nil)
		req.Header.Set("Ringway-Service", "greeter")
		resp, err := client.Do(req)
		if err != nil { // refused
			time.Sleep(5 * time.Millisecond)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			fmt.Println(string(body))
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	fmt.Println(<-stopped, <-stopped)
	// Output:
	// hello
	// <nil> <nil>
}
