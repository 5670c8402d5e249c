package worker_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/worker"
)

// An agent that still looks for its cluster is the hard case: it must not wait
// until it has found it.
func TestAKilledAgentEndsEvenBeforeItHasJoined(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")) // ends by itself
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID = "demo", "test", "worker-1"
	s.GossipAddr, s.AdminAddr = "127.0.0.1:0", "127.0.0.1:0"
	s.Join = []string{"127.0.0.1:1"} // nobody listens there
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Services = []worker.Service{{Service: advertise.Service{Name: "demo", Address: "127.0.0.1:2"}}}
	agent, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(t.Context()) }()
	agent.Kill()
	agent.Kill()
	if err := <-ended; !errors.Is(err, worker.ErrKilled) {
		t.Errorf("Run = %v, want ErrKilled", err)
	}
}
