package main

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/selection/client"
)

func TestTheProgramPrintsTheAnswerOfAService(t *testing.T) {
	f := fleet.New(fleet.Config{Cluster: "shop", Environment: "dev", Insecure: true})
	defer f.Stop()
	if err := f.StartRelay("relay-1", func(s *relay.Settings) { s.Requests.Domain = "." }); err != nil {
		t.Fatal(err)
	}
	if err := f.StartWorker(fleet.WorkerConfig{ID: "echo-1", Services: []string{"echo"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello from echo-1")
	})}); err != nil {
		t.Fatal(err)
	}
	const want = "200 OK\nhello from echo-1"
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var out bytes.Buffer
		err := run(t.Context(), &out, client.Config{Seeds: []string{f.Relay("relay-1").IngressAddr()}})
		if err == nil && out.String() == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v: %s", err, &out)
		}
	}
}
