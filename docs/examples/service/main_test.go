package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
)

func TestTheProgramAnswersThroughARelay(t *testing.T) {
	f := fleet.New(fleet.Config{Cluster: "local", Environment: "local", Insecure: true})
	defer f.Stop()
	if err := f.StartRelay("relay-1", nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, advertise.AdvertiserConfig{
			Cluster: "local", Environment: "local", ID: "echo-1", BindAddr: "127.0.0.1:0", Seeds: []string{f.Relay("relay-1").GossipAddr()},
			Services: []advertise.Service{{Name: "echo", Address: procs.FreeAddr(t)}}, DrainDelay: time.Millisecond,
		})
	}()
	ask := func() (body string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.Relay("relay-1").IngressAddr(), nil)
		req.Header.Set("Ringway-Service", "echo")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	body := ""
	for end := time.Now().Add(30 * time.Second); body != "hello from echo-1\n"; time.Sleep(10 * time.Millisecond) {
		if body = ask(); time.Now().After(end) {
			t.Fatal(body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
