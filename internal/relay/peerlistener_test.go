package relay

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/observed"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// What a stranger can make the peer listener hold is bounded, and no relay waits
// behind it.
func TestSilentConnectionsAreBoundedAndKeepNoPeerOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.secure = secured(t, "certificates")
	f.peerStrangers.Limit = time.Hour // so that only the bound on their number makes them give way
	r := f.relay(func(*Settings) {})
	for range 300 {
		conn, err := net.Dial("tcp", r.PeerAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	r.await(t, "more silent connections than one source may have", func() bool {
		return observed.Series(t, r.cfg.Registry, "ringway_relay_peers_refused_total")["too_many_from_source"] >= 300-256
	})
	client := ingress.PeerClient(f.source(identity.RoleRelay, "other"), membership.Member{ID: "r1", Role: membership.RoleRelay, ForwardAddr: r.PeerAddr()})
	for n := range 40 {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+r.PeerAddr()+factsPath, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("connection %d of 40: %v", n+1, err)
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}
}

// A relay that was started without certificates is told of in the log of the others,
// where operators look; a flood of such connections is one line.
func TestAPeerInClearTextIsAWarningAndNoFlood(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.secure = secured(t, "certificates")
	r := f.relay(func(*Settings) {})
	for range 5 {
		if resp, err := http.Get("http://" + r.PeerAddr() + factsPath); err == nil {
			_ = resp.Body.Close()
		}
	}
	r.await(t, "the warning", func() bool {
		return strings.Contains(r.log.String(), "it speaks clear text and shows no certificate")
	})
	if n := strings.Count(r.log.String(), "connection refused: only relays and gates"); n != 1 {
		t.Errorf("%d lines:\n%s", n, r.log)
	}
}
