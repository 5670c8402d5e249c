package router_test

import (
	"context"
	"flag"
	"net/http"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for gossip far more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// waitTime bounds the waits for events; none takes as long on an idle machine.
const waitTime = 30 * time.Second

// cluster is relays and workers, and routers next to them.
type cluster struct {
	*fleet.Fleet
	t *testing.T
}

func startCluster(t *testing.T, cfg fleet.Config) *cluster {
	cfg.Cluster, cfg.Environment = "shop", "dev"
	c := &cluster{fleet.New(cfg), t}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cluster) relay(id string, change func(*relay.Settings)) *fleet.Relay {
	c.t.Helper()
	if err := c.StartRelay(id, change); err != nil {
		c.t.Fatal(err)
	}
	return c.Relay(id)
}

// workers starts workers of a service, named after it.
func (c *cluster) workers(service string, handlers ...http.Handler) {
	c.t.Helper()
	for i, h := range handlers {
		if err := c.StartWorker(fleet.WorkerConfig{ID: service + "-" + strconv.Itoa(i), Handler: h, Services: []string{service}}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// same returns n times the same handler.
func same(n int, h http.HandlerFunc) []http.Handler {
	out := make([]http.Handler, n)
	for i := range out {
		out[i] = h
	}
	return out
}

// running is a router that runs.
type running struct {
	*router.Router
	stop context.CancelFunc
	done chan error
}

// router starts a router in the cluster, which has a relay already.
func (c *cluster) router(id string, change func(*membership.Config, *router.Config)) *running {
	c.t.Helper()
	member := membership.Config{
		Cluster: "shop", Environment: "dev", ID: id, Role: identity.RoleRelay,
		BindAddr: "127.0.0.1:0", ForwardAddr: procs.FreeAddr(c.t), LeaveTimeout: time.Second,
	}
	for _, r := range c.Relays() {
		member.Seeds = append(member.Seeds, r.GossipAddr())
	}
	if err := c.Equip(&member); err != nil {
		c.t.Fatal(err)
	}
	var cfg router.Config
	if change != nil {
		change(&member, &cfg)
	}
	node, err := membership.New(member)
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.Node = node
	r, err := router.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	run := &running{r, stop, make(chan error, 1)}
	go func() { run.done <- r.Run(ctx); close(run.done) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-run.done; err != nil {
			c.t.Error(err)
		}
	})
	return run
}

// ready waits until a relay accepts clients.
func (c *cluster) ready(r *fleet.Relay) {
	c.t.Helper()
	procs.Await(c.t, "the relay is ready", func() bool { return len(r.Reasons()) == 0 })
}

// knows waits until the router is ready, a request has been answered, and one has reached
// each of the workers.
func (c *cluster) knows(r *running, service string, workers ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitTime)
	defer cancel()
	if err := r.WaitReady(ctx); err != nil {
		c.t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, w := range workers {
		missing[w] = true
	}
	for answered := false; !answered || len(missing) > 0; {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+service+"/", nil)
		resp, err := r.RoundTrip(req)
		if ctx.Err() != nil {
			c.t.Fatalf("no response from %v: %v", missing, err)
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		answered = true
		delete(missing, resp.Header.Get("X-Worker"))
		_ = resp.Body.Close()
	}
}
