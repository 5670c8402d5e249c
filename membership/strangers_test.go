package membership

import (
	"context"
	"net"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Connections that send nothing cost nothing to open. They must not block members,
// not even those that come from the same address. They are more than one address may begin
// handshakes at a time, which depends on the processors.
func TestSilentConnectionsBlockNoMember(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil) })
	member := start(t, func(c *Config) { c.ID = "r2"; certified(t, a, c, nil) })
	for range 600 * min(runtime.GOMAXPROCS(0), 4) {
		conn, err := net.Dial("tcp", seed.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := 0
	for range 40 {
		conn, _, err := member.transport.dial(ctx, seed.Addr(), protocolMemberlist)
		if err != nil {
			refused++
			continue
		}
		_ = conn.Close()
	}
	if refused > 0 {
		t.Errorf("%d of 40 handshakes were refused", refused)
	}
	if testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, "too_many_from_source")) == 0 {
		t.Error("the connections that gave way are not counted")
	}
}
