//go:build linux

package hostile

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
)

// TestInAnAllowedNetworkAWorkerStillOffersOnlyItsOwnCertificate has relays with a network in which
// sidecars may be on other hosts, and a turncoat that offers everything there: the sidecar of another
// worker, the listeners of relays, and listeners that are not members.
func TestInAnAllowedNetworkAWorkerStillOffersOnlyItsOwnCertificate(t *testing.T) {
	t.Parallel()
	const elsewhere = "127.0.9.1"
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, RelayArgs: []string{"--endpoint-allowed-cidr", "127.0.0.0/16"}})
	c := startTurncoat(t, f)
	c.serveOn(t, elsewhere) // what the setting is for
	procs.Await(t, "a sidecar on another host is used", func() bool {
		c.offer(t, advertise.Service{Name: "apart", Address: c.sidecar, Secured: true})
		status, body := f.ask(f.Relays[0], "apart", http.MethodGet, "/")
		return status == http.StatusOK && body == c.id
	})

	plain, victim, first := listenBait(t, elsewhere), f.Workers[0], f.Relays[0]
	lies := []advertise.Service{
		{Name: "sidecar-of-another", Address: victim.Sidecar, Secured: true},
		{Name: echo, Address: victim.Sidecar, Secured: true, Weight: 100},
		{Name: "gossip-of-another", Address: victim.Gossip, Secured: true},
		{Name: "admin-of-another", Address: victim.Admin}, {Name: "admin-of-another-secured", Address: victim.Admin, Secured: true},
		{Name: "peers", Address: first.Peer, Secured: true}, {Name: "gossip", Address: first.Gossip, Secured: true},
		{Name: "ingress", Address: first.Ingress}, {Name: "ingress-secured", Address: first.Ingress, Secured: true},
		{Name: "admin", Address: first.Admin}, {Name: "admin-secured", Address: first.Admin, Secured: true},
		{Name: "plain", Address: plain.addr}, {Name: "plain-secured", Address: plain.addr, Secured: true},
		{Name: "mapped", Address: net.JoinHostPort("::ffff:127.0.1.1", port(first.Admin))},
		{Name: "outside", Address: "127.9.0.1:80", Secured: true},
	}
	for _, lie := range lies {
		c.offer(t, lie, advertise.Service{Name: "mark-of-" + lie.Name, Address: c.sidecar, Secured: true}) // arrives with the lie
		for _, r := range f.Relays {
			procs.Await(t, "the offer "+lie.Name+" arrives at "+r.ID, func() bool { return f.offers(r, "mark-of-"+lie.Name) })
			if lie.Name == echo {
				continue // honest workers answer
			}
			for _, asked := range []struct{ method, path string }{{http.MethodGet, "/api/v1/members"}, {http.MethodPost, "/api/v1/drain"}} {
				status, body := f.ask(r, lie.Name, asked.method, asked.path)
				if status < 400 || strings.Contains(body, victim.ID) {
					t.Errorf("%s %s of service %s through %s: %d %.200s", asked.method, asked.path, lie.Name, r.ID, status, body)
				}
			}
		}
		f.serves(5)
	}
	if n := plain.requests.Load(); n > 0 {
		t.Errorf("%d requests reached a listener that is no member", n)
	}
	for _, m := range []*procs.Member{first, f.Relays[1], victim} {
		if status, body := f.get(m.Admin, "/readyz"); status != http.StatusOK {
			t.Errorf("%s was drained or is not ready: %s", m.ID, body)
		}
	}
	if err := f.Ended(); err != nil {
		t.Error(err)
	}
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// listenAs is a listener that presents the certificate of the turncoat, as its sidecar does.
func (c *turncoat) listenAs(t *testing.T, host, protocol string) net.Listener {
	t.Helper()
	listener, err := tls.Listen("tcp", procs.FreeAddrOn(t, host), c.source.ServerConfig(c.source.Policy(identity.DataPlane), protocol))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
