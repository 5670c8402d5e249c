package relay

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/membership/identity"
)

func TestARelayIsNotReadyWhileItReachesNoWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	gate := f.relay(func(s *Settings) { s.Role = identity.RoleGate })
	_, backend := f.echo("w1")
	r.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	addr, handler := backend.Listener.Addr().String(), backend.Config.Handler
	backend.Close()
	ln, listen, err := bind(addr) // refuses, and holds the port
	if err != nil {
		t.Fatal(err)
	}
	r.await(t, "that it reaches no worker", func() bool {
		_, text := r.api(t, "/readyz", nil)
		return strings.Contains(text, "reaches no worker: none of the 1")
	})
	if reasons := gate.Reasons(); len(reasons) > 0 { // it reaches a relay, and has had no traffic
		t.Errorf("the gate is not ready: %v", reasons)
	}
	if err := listen(); err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(handler)
	_ = again.Listener.Close()
	again.Listener = ln
	again.Start()
	defer again.Close()
	r.await(t, "that it is ready again", func() bool { return len(r.Reasons()) == 0 })
}
