package router_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// A worker must not send requests through a relay: the relay would carry them with its own
// certificate, for the caller that the worker names.
func TestTheCertificateOfAWorkerSendsNoRequestThroughAProgram(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{})
	c.relay("relay-1", nil)
	var stolen atomic.Int64
	c.workers("payroll", same(1, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stolen" {
			stolen.Add(1)
		}
	})...)
	var forward string
	r := c.router("relay-2", func(m *membership.Config, _ *router.Config) { forward = m.ForwardAddr })
	c.knows(r, "payroll")
	thief := membership.Config{Role: identity.RoleWorker, Cluster: "shop", Environment: "dev", ID: "thief"}
	if err := c.Equip(&thief); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{session.Protocol, "http/1.1", "h2"} {
		plain, err := net.Dial("tcp", forward)
		if err != nil {
			t.Fatal(err)
		}
		expected := identity.Expected{Node: "relay-2", Role: identity.RoleRelay}
		conn := tls.Client(plain, thief.Identity.ClientConfig(thief.Identity.Policy(identity.DataPlane), expected, protocol))
		if err := conn.SetDeadline(time.Now().Add(waitTime)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /stolen HTTP/1.1\r\nHost: payroll\r\nConnection: close\r\n"+
			wire.ServiceHeader+": payroll\r\n"+wire.CallerHeader+": the-boss\r\n"+wire.HopHeader+": relay-1\r\n\r\n")
		if answer, _ := io.ReadAll(conn); bytes.HasPrefix(answer, []byte("HTTP/")) {
			t.Errorf("a worker that speaks %s is answered: %s", protocol, answer)
		}
		_ = conn.Close()
	}
	if n := stolen.Load(); n > 0 {
		t.Errorf("%d requests have reached the service", n)
	}
}

// The key of gossip is what keeps others from offering services, and a session in clear text shows none.
func TestASessionPassesNoGossipKeyBy(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint(keyed), func(t *testing.T) {
			bubble(t, func(t *testing.T, f inMemory) {
				member := f.Member("relay-1", identity.RoleRelay)
				member.Identity = nil
				if !keyed {
					member.Keyring = nil
				}
				node, err := membership.New(member)
				if err != nil {
					t.Fatal(err)
				}
				r, err := router.New(router.Config{Node: node})
				if err != nil {
					t.Fatal(err)
				}
				f.run(r.Run)
				conn, err := member.Network.Dial(t.Context(), member.ForwardAddr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "GET "+session.Path+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: "+session.Protocol+"\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if begun := err == nil && resp.StatusCode == http.StatusSwitchingProtocols; begun == keyed {
					t.Errorf("answered %+v, %v", resp, err)
				}
			})
		})
	}
}

// Every relay with a ForwardAddr is in the rows of attached workers.
func TestAttachedWorkersHoldSessionsWithPrograms(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"certificates": false, "clear text": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: insecure})
			binary := c.relay("relay-1", nil)
			registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
			ids := []string{"program-1", "program-2"}
			var routers []*running
			for i, registry := range registries {
				routers = append(routers, c.router(ids[i], func(_ *membership.Config, cfg *router.Config) { cfg.Registerer = registry }))
			}
			if err := c.StartWorker(fleet.WorkerConfig{
				ID: "w1", Handler: &moody{name: "w1"}, Services: []string{"echo"},
				Change: func(s *worker.Settings) { s.Join, s.Attach = nil, []string{binary.PeerAddr()} },
			}); err != nil {
				t.Fatal(err)
			}
			for i, registry := range registries {
				procs.Await(t, "a session with "+ids[i], func() bool {
					return logtest.Series(t, registry, "ringway_session_held")[""] == 1
				})
				c.knows(routers[i], "echo", "w1")
			}
		})
	}
}
