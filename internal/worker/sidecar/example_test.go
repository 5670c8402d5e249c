package sidecar_test

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
	"github.com/ringway/ringway/internal/worker/sidecar"
	"github.com/ringway/ringway/membership/identity"
)

// A relay reaches a service of worker-1 through its sidecar.
func Example() {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	member := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "shop", Environment: "prod", Node: node}, time.Minute)
		if err != nil {
			panic(err)
		}
		return s
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer service.Close()

	s, err := sidecar.New(sidecar.Config{
		Addr: "127.0.0.1:0", Identity: member(identity.RoleWorker, "worker-1"),
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.SetServices([]sidecar.Service{{Service: advertise.Service{Name: "greeter", Address: service.Listener.Addr().String()}}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	relay := member(identity.RoleRelay, "relay-1")
	tr := &http.Transport{TLSClientConfig: relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{Node: "worker-1"}, "http/1.1")}
	for _, name := range []string{"greeter", "other"} {
		req, _ := http.NewRequest("GET", "https://"+s.Addr().String(), nil)
		req.Header.Set("Ringway-Service", name)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%d load=%q failed=%q %s\n", resp.StatusCode, resp.Header.Get("Ringway-Load"), resp.Header.Get("Ringway-Failed"), body)
	}
	tr.CloseIdleConnections()
	stop()
	fmt.Println(<-ended)
	// Output:
	// 200 load="0" failed="" hello
	// 404 load="" failed="unsent" {"error":"this worker does not offer the service \"other\"","code":"unknown_service","service":"other"}
	//
	// <nil>
}
