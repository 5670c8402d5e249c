package worker_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/worker"
)

func TestThePageOfAWorkerShowsItsServicesAndTheRelays(t *testing.T) {
	t.Parallel()
	node, _ := observer(t)
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Join = "test", "ci", "w1", []string{node.Addr()}
	s.GossipAddr, s.AdminAddr, s.DrainDelay = "127.0.0.1:0", "127.0.0.1:0", 0
	s.Services = []string{"echo=127.0.0.1:9000", "other=127.0.0.1:9001"}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var drained api.WorkerServices
	if status := ask(t, agent, "POST", "/api/v1/drain?service=other", "", &drained); status != 200 {
		t.Fatalf("drain: %d", status)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	page := ""
	for deadline := time.Now().Add(patience); ; {
		answer, err := client.Get("http://" + agent.AdminAddr() + "/")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // read to its end
		page = string(text)
		if strings.Contains(page, ">r1<") || time.Now().After(deadline) {
			break
		}
	}
	for _, want := range []string{">echo<", ">other<", ">offered<", "draining by an operator", ">r1<", "</span> Ready<"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
