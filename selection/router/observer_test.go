package router_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

// observes makes an observer of a router.
func observes(m *membership.Config, _ *router.Config) {
	m.Role, m.ForwardAddr = identity.RoleObserver, ""
}

// observer starts one with its certificate, if the fleet has them.
func (c *cluster) observer(id string, change func(*router.Config)) *running {
	c.t.Helper()
	return c.router(id, func(m *membership.Config, cfg *router.Config) {
		observes(m, cfg)
		if err := c.Equip(m); err != nil { // the certificate of another role
			c.t.Fatal(err)
		}
		if change != nil {
			change(cfg)
		}
	})
}

// With certificates every request passes a sidecar, which admits the observer by its role.
func TestAnObserverReachesWorkersWhileOneDrainsAndOneDies(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"mutual TLS": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: insecure})
			binary := c.relay("relay-1", nil)
			names := []string{"echo-0", "echo-1", "echo-2", "echo-3"}
			handlers := make([]http.Handler, len(names))
			for i, id := range names {
				handlers[i] = &moody{name: id}
			}
			c.workers("echo", handlers...)
			o := c.observer("caller-1", nil)
			c.knows(o, "echo", names...)
			server := proxy(t, "echo", o)
			requests := func(what string) {
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
				defer client.CloseIdleConnections()
				if failed := load(server.URL, client, 400); failed > 0 {
					t.Errorf("%s: %d of 400 requests failed", what, failed)
				}
			}
			requests("all well")
			if err := c.Drain("echo-1"); err != nil {
				t.Fatal(err)
			}
			requests("one drains")
			follow(t, o.Router, func(ids []string) bool { return !slices.Contains(ids, "echo-1") })
			if err := c.Kill("echo-2"); err != nil {
				t.Fatal(err)
			}
			requests("one is dead")
			follow(t, o.Router, func(ids []string) bool { return slices.Equal(ids, []string{"echo-0", "echo-3"}) })
			pick, err := o.Pick(t.Context(), "echo", "")
			if err != nil {
				t.Fatal(err)
			}
			pick.Done(selection.Success)
			c.ready(binary) // asks the observer for nothing: it would wait for answers
		})
	}
}

// follow waits for the endpoints of echo by the channels alone: without the event the test fails.
func follow(t *testing.T, r *router.Router, reached func(ids []string) bool) {
	t.Helper()
	end := time.After(waitTime)
	for {
		endpoints, changed := r.Endpoints("echo")
		var ids []string
		for _, e := range endpoints {
			ids = append(ids, e.NodeID)
		}
		if slices.Sort(ids); reached(ids) {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("no change follows: %v", ids)
		}
	}
}
