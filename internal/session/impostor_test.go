package session

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// The worker would take r1 for r2, and end its session with r2.
func TestARowInTheNameOfAnotherRelayEndsItsSession(t *testing.T) {
	t.Parallel()
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	of := func(role identity.Role, node string) *identity.Source {
		source, err := authority.Source(identity.Claims{Role: role, Cluster: "c", Environment: "e", Node: node}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	for name, rows := range map[string][]string{"the first": {"r2"}, "a later one": {"r1", "r2"}} {
		t.Run(name, func(t *testing.T) {
			listener, r1, done := procs.Listen(t), of(identity.RoleRelay, "r1"), make(chan struct{})
			t.Cleanup(func() { _ = listener.Close(); <-done })
			go func() {
				defer close(done)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				secured := tls.Server(conn, r1.ServerConfig(r1.Policy(identity.DataPlane), Protocol))
				defer func() { _ = secured.Close() }()
				for i, self := range rows {
					_, _ = secured.Write(AppendFrame(nil, KindRow, Row{
						Version: uint64(i) + 1, Self: self, Epoch: 1, Size: 1,
						Relays: []RowRelay{{ID: self, Epoch: 1, Address: listener.Addr().String()}},
					}.Encode()))
				}
				for err == nil {
					_, _, err = ReadFrame(secured, MaxHello)
				}
			}()
			var log logtest.Log
			c, err := NewClient(Config{Member: membership.Config{
				ID: "w1", Cluster: "c", Environment: "e", Identity: of(identity.RoleWorker, "w1"), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, Seeds: []string{listener.Addr().String()}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			procs.Await(t, "the session has ended as forged", func() bool {
				return testutil.ToFloat64(c.ended.WithLabelValues("forged")) == 1 && log.Lines("forged row") == 1 // counted before it is logged
			})
			for _, m := range c.Snapshot().Members() {
				if m.ID == "r2" {
					t.Error("r1 passes for r2")
				}
			}
			if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "r1") || !strings.Contains(text, "r2") {
				t.Errorf("logged %s", text)
			}
		})
	}
}
