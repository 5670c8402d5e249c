package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func TestTheProgramServesClientsAndStopsWithoutALostRequest(t *testing.T) {
	f := fleet.New(fleet.Config{Cluster: "local", Environment: "local", Insecure: true})
	defer f.Stop()
	if err := f.StartRelay("relay-1", nil); err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}), make(chan struct{})
	if err := f.StartWorker(fleet.WorkerConfig{ID: "echo-1", Services: []string{"echo"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(arrived)
			<-release
		}
		_, _ = io.WriteString(w, "hello from echo-1")
	})}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	addr, done := procs.FreeAddr(t), make(chan error, 1)
	go func() {
		done <- run(ctx, addr, membership.Config{
			Cluster: "local", Environment: "local", ID: "my-relay", Role: identity.RoleRelay,
			BindAddr: "127.0.0.1:0", ForwardAddr: procs.FreeAddr(t), Seeds: []string{f.Relay("relay-1").GossipAddr()},
		})
	}()
	get := func(path string) (status int, body string) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, body := get("/")
		if status == http.StatusOK && body == "hello from echo-1" {
			break
		}
		// Before it is ready it refuses connections; the worker may come after it.
		if status != 0 && status != http.StatusNotFound || time.Now().After(end) {
			t.Fatal(status, body)
		}
	}
	waiting := make(chan int, 1)
	go func() { status, _ := get("/wait"); waiting <- status }()
	<-arrived
	stop()
	for status := 1; status != 0; status, _ = get("/") { // until it refuses connections
		time.Sleep(time.Millisecond)
	}
	close(release)
	if status := <-waiting; status != http.StatusOK {
		t.Errorf("the request in flight got %d", status)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
