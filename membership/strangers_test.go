package membership

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Connections that send nothing cost nothing to open. They must not block members,
// not even those that come from the same address. They are more than one address may begin
// handshakes at a time, which depends on the processors.
func TestSilentConnectionsBlockNoMember(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil) })
	member := start(t, func(c *Config) { c.ID = "r2"; certified(t, a, c, nil) })
	for round := 1; ; round++ {
		refused, late := handshakesAmongSilence(t, seed, member)
		if refused == 0 && !late {
			break
		}
		// A handshake that runs out of its time on a busy machine shows nothing. If silent connections
		// are the cause, it does so in each round.
		if refused > 0 || round == 3 {
			t.Errorf("%d of 40 handshakes were refused, and one ran out of its time: %t", refused, late)
			break
		}
	}
	if testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, "too_many_from_source")) == 0 {
		t.Error("the connections that gave way are not counted")
	}
}

// handshakesAmongSilence opens connections that send nothing, and begins 40 handshakes of a member. It
// returns how many were refused, and, instead of the rest, whether one ran out of its time.
func handshakesAmongSilence(t *testing.T, seed, member *testNode) (refused int, late bool) {
	t.Helper()
	for range 600 * min(runtime.GOMAXPROCS(0), 4) {
		conn, err := net.Dial("tcp", seed.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 40 {
		began := time.Now()
		conn, _, err := member.transport.dial(ctx, seed.Addr(), protocolMemberlist)
		switch {
		case err == nil:
			_ = conn.Close()
		case time.Since(began) >= helloTimeout/2:
			return refused, true
		default:
			refused++
		}
	}
	return refused, false
}
