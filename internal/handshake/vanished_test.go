package handshake

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
)

// A check has the bytes that are owed, and the seconds of silence.
func TestAHostHasVanishedWhenItOwesAnAcknowledgementForTheLimit(t *testing.T) {
	type check struct {
		owed   bool
		silent time.Duration
	}
	const hour = time.Hour
	for name, test := range map[string]struct {
		checks []check // owedInterval apart
		want   bool    // after the last, and not before
	}{
		"silent and owes nothing":   {[]check{{false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}, {false, hour}}, false},
		"owes from an idle hour on": {[]check{{true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}}, true},
		// A reader of nothing, whose host answers each probe of the closed window.
		"answers probes two minutes apart": {[]check{{true, 5 * time.Second}, {true, 20 * time.Second}, {true, 35 * time.Second}, {true, 50 * time.Second}, {true, 65 * time.Second}, {true, 80 * time.Second}, {true, 95 * time.Second}, {true, 110 * time.Second}, {true, 5 * time.Second}, {true, 20 * time.Second}, {true, 35 * time.Second}, {true, 50 * time.Second}}, false},
		"has paid in between":              {[]check{{true, hour}, {true, hour}, {true, hour}, {true, hour}, {true, hour}, {false, 0}, {true, 15 * time.Second}, {true, 30 * time.Second}, {true, 45 * time.Second}, {true, time.Minute}, {true, time.Minute + 15*time.Second}}, false},
	} {
		var one debt
		now := time.Now()
		for i, c := range test.checks {
			last := i == len(test.checks)-1
			if got := one.vanished(now, c.owed, c.silent); got != (test.want && last) {
				t.Errorf("%s: check %d: vanished is %t", name, i, got)
			}
			now = now.Add(owedInterval)
		}
	}
}

func TestTheConnectionsOfAVanishedHostAreClosedAndNoOthers(t *testing.T) {
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
	worker, relay := of(identity.RoleWorker, "w1"), of(identity.RoleRelay, "r1")
	var log logtest.Log
	socket := procs.Listen(t)
	l := NewListener(ListenerConfig{
		Socket: socket, Source: worker, TLS: worker.ServerConfig(worker.Policy(identity.DataPlane)), Allowed: "relays",
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused"}, []string{"reason"}), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	var lost atomic.Bool
	l.debts.read = func(raw syscall.RawConn) (bool, time.Duration, error) {
		return lost.Load(), time.Hour, raw.Control(func(uintptr) {})
	}
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run() }()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	connect := func() (client, server net.Conn) {
		nc, err := net.Dial("tcp", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		config := relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{})
		secured := tls.Client(nc, config)
		t.Cleanup(func() { _ = secured.Close() })
		shaken := make(chan error, 1)
		go func() { shaken <- secured.HandshakeContext(t.Context()) }()
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		if err := <-shaken; err != nil {
			t.Fatal(err)
		}
		return secured, server
	}
	_, gone := connect()
	_ = gone.Close()
	client, server := connect()
	now := time.Now()
	l.judge(now)
	l.judge(now.Add(owedLimit))
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatalf("a connection that owes nothing: %v", err)
	}
	if n := len(l.debts.open); n != 1 {
		t.Errorf("%d connections are watched, want the open one", n)
	}
	lost.Store(true)
	l.judge(now)
	l.judge(now.Add(owedLimit))
	_ = client.SetReadDeadline(time.Now().Add(procs.Patience))
	if _, err := io.Copy(io.Discard, client); os.IsTimeout(err) {
		t.Errorf("the connection stays open: %v", err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the server is not notified: %v", err)
	}
	if log.Lines("connections=1") != 1 {
		t.Errorf("logged %s", &log)
	}
}
