package worker_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const patience = 30 * time.Second

// observer is a relay's eyes: a member that watches the catalogue. The certificate may be
// nil.
func observer(t *testing.T, certificate *identity.Source) (*membership.Node, *advertise.Catalogue) {
	t.Helper()
	node, err := membership.New(membership.Config{Cluster: "test", Environment: "ci", ID: "r1", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", Identity: certificate})
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := advertise.New(advertise.Config{Gossip: node})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = catalogue.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = node.Close()
	})
	return node, catalogue
}

// fleetOf is a fleet whose workers join at a gossip address.
func fleetOf(seed string) *fleet.Fleet {
	return fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true, Seeds: []string{seed}})
}

func TestAStoppingAgentDrainsBeforeItLeaves(t *testing.T) {
	t.Parallel()
	node, catalogue := observer(t, nil)
	f := fleetOf(node.Addr())
	err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) {
		// The observer sees only the newest state: a busy machine must not make it miss the drain.
		s.Services, s.DrainDelay = []string{"echo=127.0.0.1:9000;weight=20"}, 10*time.Second
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	stop := sync.OnceFunc(func() { ended <- f.Stop() })
	defer stop()

	// What the observer sees of the endpoint, each state once. The first view may have it already.
	seen := []string{"gone"}
	watching, done := context.WithTimeout(t.Context(), patience)
	defer done()
	for view := range catalogue.Watch(watching) {
		state := "gone"
		if e, ok := view.Endpoint("echo", "w1"); ok {
			state = string(e.State)
			if e.Weight != 20 || e.Address != "127.0.0.1:9000" {
				t.Errorf("offered %+v", e)
			}
		}
		if seen[len(seen)-1] == state {
			continue
		}
		seen = append(seen, state)
		if state == "ready" {
			ready(t, f.Worker("w1").Agent)
			go stop()
		}
		if state == "gone" {
			break
		}
	}
	if want := []string{"gone", "ready", "draining", "gone"}; !slices.Equal(seen, want) {
		t.Errorf("the relay saw %v, want %v", seen, want)
	}
	if err := <-ended; err != nil {
		t.Errorf("an orderly stop returned %v", err)
	}
}

// ready checks what the agent reports about itself while it offers.
func ready(t *testing.T, agent *worker.Agent) {
	t.Helper()
	var got api.WorkerServices
	if status := ask(t, agent, "GET", "/api/v1/services", "", &got); status != 200 {
		t.Errorf("%d", status)
	}
	if got.Worker != "w1" || got.Draining || len(got.Services) != 1 || got.Services[0].State != string(worker.Offered) || got.Services[0].Source != string(worker.FromSettings) {
		t.Errorf("%+v", got)
	}
}

// ask calls the admin API and decodes what it answers.
func ask(t *testing.T, agent *worker.Agent, method, path, body string, into any) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+agent.AdminAddr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(text, into) != nil {
		t.Errorf("%s %s: %s (%v)", method, path, text, err)
	}
	return resp.StatusCode
}

func TestAnAgentThatCannotBindNamesTheAddress(t *testing.T) {
	node, _ := observer(t, nil)
	err := fleetOf(node.Addr()).StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) { s.GossipAddr = node.Addr() }})
	if err == nil || !strings.Contains(err.Error(), "listen for gossip on "+node.Addr()) || !strings.Contains(err.Error(), "--gossip-addr") {
		t.Errorf("%v", err)
	}
}

// A worker without seeds is ready when a relay has joined it, and not before.
func TestAWorkerThatKnowsNoRelayIsNotReady(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true})
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) { s.Services, s.Join = []string{"echo=127.0.0.1:9000"}, nil }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	agent := f.Worker("w1").Agent
	// Its first reason is that it has not joined. Without seeds, that needs no other member.
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var health api.Health
		status := ask(t, agent, "GET", "/readyz", "", &health)
		if status == http.StatusServiceUnavailable && strings.Contains(strings.Join(health.Reasons, " "), "no relay is known: give --join") {
			break
		}
		if status == http.StatusOK || time.Now().After(end) {
			t.Fatalf("alone: %d %v", status, health.Reasons)
		}
	}
	node, err := membership.New(membership.Config{Cluster: "test", Environment: "ci", ID: "r1", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", Seeds: []string{agent.GossipAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	procs.Await(t, "with a relay, the worker is ready", func() bool { return len(agent.Reasons()) == 0 })
}
