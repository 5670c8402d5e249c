//go:build linux

package hostile

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// syncProtocol is the protocol of streams on which members compare their records.
const syncProtocol = "adsync/1"

// maxDrain is how long a drain may take to reach all relays.
const maxDrain = time.Second

// largeOffer makes the record of a worker too large for a gossip packet: others fetch it over a
// stream.
func largeOffer() string {
	var more strings.Builder
	for n := range 16 {
		fmt.Fprintf(&more, ";tag=%02d%s", n, strings.Repeat("x", 62))
	}
	return ";version=" + strings.Repeat("v", 64) + more.String()
}

// TestSilentStreamsDelayNoDrain has a turncoat keep 100 streams for records open at each member
// that never send anything, and one in the middle of an exchange. It runs alone, because other attacks
// at the same time take the processors of a slow machine, and that is not what delays this drain.
func TestSilentStreamsDelayNoDrain(t *testing.T) {
	const silent, drains = 100, 5
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Offer: largeOffer()})
	c, w := startTurncoat(t, f), f.Workers[0]
	calm := median(f.drains(w, drains))

	hints := func() float64 {
		return f.metrics(f.Relays[0].Admin, "ringway_advertise_records_received_total", func(series string) bool { return strings.Contains(series, `"hint"`) })
	}
	if hints() == 0 {
		t.Fatal("the record of the worker is small enough for gossip: this test would prove nothing")
	}
	defer c.holdStreams(t, f.ids(), silent)()
	times := f.drains(w, drains)
	t.Logf("drains reached the relays after %v, without the attack half of them after %v", times, calm)
	if most := max(maxDrain, 3*calm); median(times) > most {
		t.Fatalf("half of the drains may take %v, they took %v", most, times)
	}
	for _, r := range f.Relays {
		cut := f.metrics(r.Admin, "ringway_advertise_exchange_cut_offs_total", func(series string) bool { return strings.Contains(series, `"silent"`) })
		if cut < silent-2 {
			t.Errorf("%s has counted %v silent streams that it closed", r.ID, cut)
		}
	}
	f.serves(10)
}

// drains drains a worker n times, and returns how long each drain took. A stall of the machine delays
// some of them, an attack delays most.
func (f *fleet) drains(w *procs.Member, n int) (times []time.Duration) {
	f.t.Helper()
	for range n {
		times = append(times, f.drain(w, true).Round(time.Millisecond))
		f.drain(w, false)
	}
	return times
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// drain drains a worker, or ends its drain, and returns how long it took from the announcement
// until every relay knew.
func (f *fleet) drain(w *procs.Member, drained bool) time.Duration {
	f.t.Helper()
	path, want := "/api/v1/undrain", "ready"
	if drained {
		path, want = "/api/v1/drain", "draining"
	}
	if status, body := send(f.client, call{method: http.MethodPost, addr: w.Admin, path: path}); status != http.StatusOK {
		f.t.Fatalf("%s of %s: %d %s", path, w.ID, status, body)
	}
	announced := time.Now()
	for _, r := range f.Relays {
		procs.Await(f.t, r.ID+" knows that "+w.ID+" is "+want, func() bool {
			var got struct {
				Catalogue []struct {
					NodeID string `json:"node_id"`
					State  string
				}
			}
			f.Get(r, "/api/v1/services/"+echo, &got)
			for _, endpoint := range got.Catalogue {
				if endpoint.NodeID == w.ID {
					return endpoint.State == want
				}
			}
			return false
		})
	}
	return time.Since(announced)
}

// holdStreams keeps n silent streams for records open at each member, and one in the middle of
// an exchange. It opens each again when it is closed, and returns when all have been opened once.
func (c *turncoat) holdStreams(t *testing.T, members []string, n int) (stop func()) {
	t.Helper()
	const again = 2 * time.Second // a handshake costs the machine of the test some milliseconds
	strange := append(binary.BigEndian.AppendUint32(nil, 17), make([]byte, 17)...)
	strange[4], strange[5] = 1, 0xff // a hello with roots that no member has
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var opened atomic.Int64
	hold := func(id string, first []byte) {
		for once := true; ctx.Err() == nil; once = false {
			conn, err := c.node.OpenStream(ctx, id, syncProtocol)
			if once {
				opened.Add(1)
			}
			if err == nil {
				_, _ = conn.Write(first)
				holdOpen(ctx, conn)
			}
			select {
			case <-ctx.Done():
			case <-time.After(again):
			}
		}
	}
	for _, id := range members {
		for range n {
			running.Go(func() { hold(id, nil) })
		}
		running.Go(func() { hold(id, strange) })
	}
	procs.Await(t, "all streams are open", func() bool { return opened.Load() == int64(len(members)*(n+1)) })
	return func() { cancel(); running.Wait() }
}

// holdOpen reads until the other end closes the connection, or ctx ends.
func holdOpen(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	for buf := make([]byte, 4096); ; {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}
