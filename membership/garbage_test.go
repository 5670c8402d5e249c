package membership

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// TestRandomPacketsMoveNoMember sends garbage of every kind at a live member for as
// long as it takes: nothing of it is to reach the members' view.
func TestRandomPacketsMoveNoMember(t *testing.T) {
	n := start(t, func(c *Config) { c.ID = "r1" })
	peer := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{n.Addr()} })
	n.await(t, "r2", sees("r1", "r2"))
	peer.await(t, "r1", sees("r1", "r2"))

	stop := make(chan struct{})
	watched := make(chan string, 1)
	watch := n.Watch(t.Context())
	go func() {
		defer close(watched)
		for {
			select {
			case s := <-watch:
				if !sees("r1", "r2")(s) {
					watched <- "the view changed"
					return
				}
			case <-stop:
				return
			}
		}
	}()

	udp, err := net.Dial("udp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	random := rand.NewChaCha8([32]byte{7})
	pick := rand.New(random)
	label := gossip.LabelHeader("test/ci")
	packet := make([]byte, 1400)
	for range randomPackets {
		_, _ = random.Read(packet)
		if pick.IntN(2) == 0 { // half of them get past the label, to memberlist itself
			copy(packet, label)
			packet[len(label)] = byte(pick.IntN(16)) // a message type that exists
		}
		_, _ = udp.Write(packet[:1+pick.IntN(len(packet))]) // a full buffer is the kernel's business
	}
	close(stop)
	if reason := <-watched; reason != "" {
		t.Errorf("%s: %v", reason, n.Snapshot().Members())
	}
	if testutil.ToFloat64(n.metrics.dropped.WithLabelValues("label")) == 0 {
		t.Error("no packet was counted as dropped")
	}
	// It gossips as before: a third member becomes known through it, in time.
	began := time.Now()
	start(t, func(c *Config) { c.ID, c.Seeds = "r3", []string{n.Addr()} })
	peer.await(t, "r3", sees("r1", "r2", "r3"))
	t.Logf("%d packets; a join took %v afterwards", randomPackets, time.Since(began))
}
