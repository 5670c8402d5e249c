package relay

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

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
	r := f.relay(func(*Settings) {})
	// A silent connection is held for 3 s. A busy machine may need longer to open as many as one
	// source may have, so this opens connections until the first one had to give way.
	gaveWay := func() bool {
		_, text := r.api(t, "/metrics", nil)
		return strings.Contains(text, "ringway_relay_peers_refused_total") &&
			!strings.Contains(text, `ringway_relay_peers_refused_total{reason="too_many_from_source"} 0`)
	}
	for opened := 0; opened < 300 || !gaveWay(); opened += 300 {
		if opened == 3000 {
			t.Fatal("all of them are held")
		}
		for range 300 {
			conn, err := net.Dial("tcp", r.PeerAddr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	client := ingress.PeerClient(f.source(identity.RoleRelay, "other"), membership.Member{ID: "r1", Role: membership.RoleRelay, ForwardAddr: r.PeerAddr()})
	var failures []error
	for range 40 {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+r.PeerAddr()+factsPath, nil)
		resp, err := client.Do(req)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}
	// Silent connections that kept peers out would keep out all of them. On a busy machine a
	// handshake may take longer than the 3 s that it has.
	if len(failures) > 4 {
		t.Errorf("%d of 40 connections fail: %v", len(failures), errors.Join(failures...))
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
