package relay

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// What a stranger can make the peer listener hold is bounded, and no relay waits
// behind it.
func TestSilentConnectionsAreBoundedAndBlockNoPeer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.secure = secured(t, "certificates")
	f.pendingPeers.Limit = time.Hour // so that only the bound on their number makes them give way
	r := f.relay(func(*Settings) {})
	for range 300 {
		conn, err := net.Dial("tcp", r.PeerAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	r.await(t, "more silent connections than one source may have", func() bool {
		return logtest.Series(t, r.cfg.Registry, "ringway_relay_peers_refused_total")["too_many_from_source"] >= 300-256
	})
	client := ingress.PeerClient(f.source(identity.RoleRelay, "other"), membership.Member{ID: "r1", Role: identity.RoleRelay, ForwardAddr: r.PeerAddr()}, nil)
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

// A relay that was started without certificates is reported in the log of the others,
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

// A gate without requests must not lose and reopen its connections again and again.
func TestTheConnectionOfAPeerOutlivesTheIdleTimeOfClients(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		f := newFleet(t)
		if secure {
			f.secure = secured(t, "certificates")
		}
		r := f.relay(func(s *Settings) { s.Clients.IdleTimeout = 300 * time.Millisecond })
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		scheme := "http"
		if secure {
			scheme = "https"
			source := f.source(identity.RoleGate, "g1")
			transport.Protocols.SetHTTP2(true)
			transport.TLSClientConfig = source.ClientConfig(source.Policy(identity.DataPlane), identity.Expected{Node: "r1", Role: identity.RoleRelay}, "h2")
		}
		peer, err := transport.NewClientConn(t.Context(), scheme, r.PeerAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		ask := func() error {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", scheme+"://"+r.PeerAddr()+factsPath, nil)
			resp, err := peer.RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		r.await(t, "the ingress to open", func() bool { return r.sockets[0].isOpen() })
		for range 3 { // connections of clients, one after the other, that are closed because they are idle
			client, err := net.Dial("tcp", r.IngressAddr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, client)
			_ = client.Close()
		}
		if err := ask(); err != nil {
			t.Errorf("secured %v: after three times the idle time of clients: %v", secure, err)
		}
	}
}
