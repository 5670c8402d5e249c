//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestARelayThatDoesNotServeAServiceForwards has services that one relay of four serves each,
// and one that three serve.
func TestARelayThatDoesNotServeAServiceForwards(t *testing.T) {
	t.Parallel()
	const workers, relays, wide = 2, 4, "wide"
	f := startFleet(t, fleetConfig{Relays: relays, Workers: workers,
		RelayArgs: append(servedBy("r2", relays, echo, rpc), "--relays-per-service", "3"),
		Services:  func(int) []string { return []string{echo, rpc + ";protocol=h2c", wide} }})
	affine, forwarding := f.roles(t, echo, workers)
	_, rpcForwarding := f.roles(t, rpc, workers)

	t.Run("while nothing changes", func(t *testing.T) {
		for _, r := range forwarding {
			t.Run(r.ID+" forwards requests and names who did what", func(t *testing.T) {
				t.Parallel()
				f.forwards(t, r, affine)
			})
			t.Run(r.ID+" forwards server-sent events as they are sent", parallel(f.eventsPass(r, echo)))
			t.Run(r.ID+" forwards chunked bodies and trailers", parallel(f.trailersPass(r, echo)))
			t.Run(r.ID+" forwards large bodies", parallel(f.largeBodiesPass(r, echo)))
			t.Run(r.ID+" forwards a WebSocket", parallel(f.webSocketPasses(r, echo)))
			t.Run(r.ID+" forwards a WebSocket over HTTP/2", parallel(f.webSocketPassesOverHTTP2(r, echo)))
		}
		for _, r := range rpcForwarding {
			t.Run(r.ID+" forwards gRPC, unary and streaming", parallel(f.grpcPasses(r, rpc)))
		}
		t.Run(affine.ID+" carries a WebSocket itself", parallel(f.webSocketPasses(affine, echo)))
		t.Run(affine.ID+" carries a WebSocket over HTTP/2 itself", parallel(f.webSocketPassesOverHTTP2(affine, echo)))
	})
	t.Run("another relay takes over from one that is killed", func(t *testing.T) { f.takesOver(t, wide, workers) })
}

func parallel(promise func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		promise(t)
	}
}

// roles waits until the relays that run agree who serves the service, and all
// know its endpoints.
func (f *fleet) roles(t *testing.T, service string, endpoints int) (affine *relay, forwarding []*relay) {
	t.Helper()
	procs.Await(t, "one relay serves "+service, func() bool {
		var serving []*relay
		forwarding = nil
		for _, r := range f.running() {
			var v serviceView
			if _, status := f.ready(r.Admin); status != 200 || f.api(r.Admin, "/api/v1/services/"+service, &v) != 200 || v.Endpoints != endpoints {
				return false
			}
			if v.Role == "affine" {
				serving = append(serving, r)
			} else {
				forwarding = append(forwarding, r)
			}
		}
		if len(serving) != 1 {
			return false
		}
		affine = serving[0]
		for _, r := range forwarding {
			var v serviceView
			f.api(r.Admin, "/api/v1/services/"+service, &v)
			if v.Role != "forwarding" || len(v.Peers) != 1 || v.Peers[0].Node != affine.ID {
				return false
			}
		}
		return true
	})
	return affine, forwarding
}

func (f *fleet) forwards(t *testing.T, r, affine *relay) {
	const requests = 20
	for n := range requests {
		a := f.client.send(request{method: http.MethodPost, addr: r.Ingress, path: "/", service: echo, id: fmt.Sprintf("forwarded-%s-%d", r.ID, n), payload: strings.NewReader("x")})
		if a.status != 200 || a.header.Get(relayHeader) != r.ID || a.header.Get(endpointHeader) != a.body || a.header.Get(attemptsHeader) != "1" {
			t.Fatalf("%v", a)
		}
		if got := a.header.Get("Seen-Forwarded-For"); got != "127.0.0.1" {
			t.Errorf("X-Forwarded-For at the worker: %q, want the client alone", got)
		}
		if got := a.header.Get("Seen-Reserved"); got != "" {
			t.Errorf("the worker saw %s", got)
		}
	}
	for id, n := range f.executed(t) {
		if strings.HasPrefix(id, "POST forwarded-"+r.ID) && n != 1 {
			t.Errorf("%s was executed %d times", id, n)
		}
	}
	var v serviceView
	f.api(r.Admin, "/api/v1/services/"+echo, &v)
	if v.Role != "forwarding" || len(v.Peers) != 1 || v.Peers[0].Node != affine.ID || v.Peers[0].Requests < requests {
		t.Errorf("%s: %+v, want %d requests forwarded to %s", r.ID, v, requests, affine.ID)
	}
	if n := f.metric(t, affine, `ringway_relay_connections_total{listener="peer"}`); n < 1 {
		t.Errorf("%s accepted %v connections of relays", affine.ID, n)
	}
	f.secondHopIsRefused(t, r)
}

// secondHopIsRefused sends what looks forwarded to a relay that would have to
// forward it again.
func (f *fleet) secondHopIsRefused(t *testing.T, r *relay) {
	a := f.asRelay(t, r, request{path: "/", service: echo})
	if a.status != http.StatusMisdirectedRequest {
		t.Errorf("a second hop through %s: %v, want 421", r.ID, a)
	}
}

// takesOver kills one of the relays that serve a service; the one that forwarded takes its place.
func (f *fleet) takesOver(t *testing.T, service string, workers int) {
	serving := func() (serving []*relay) {
		for _, r := range f.running() {
			var v serviceView
			if _, status := f.ready(r.Admin); status == 200 && f.api(r.Admin, "/api/v1/services/"+service, &v) == 200 && v.Endpoints == workers && v.Role == "affine" {
				serving = append(serving, r)
			}
		}
		return serving
	}
	var before []*relay
	procs.Await(t, "all relays but one serve "+service, func() bool { before = serving(); return len(before) == len(f.relays)-1 })
	before[0].Kill()
	procs.Await(t, "all that are left serve "+service, func() bool { return len(serving()) == len(f.relays)-1 })
	for _, r := range f.running() {
		if a := f.call(r, service); a.status != 200 || a.header.Get(relayHeader) != r.ID {
			t.Errorf("%v", a)
		}
	}
}
