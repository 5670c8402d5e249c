//go:build linux

package hostile

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
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
	const silent, drains = 100, 3
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Offer: largeOffer()})
	c, w := startTurncoat(t, f), f.Workers[0]
	calm := f.drain(w, true)
	f.drain(w, false)

	hints := func() float64 {
		return f.metrics(f.Relays[0].Admin, "ringway_advertise_records_received_total", func(series string) bool { return strings.Contains(series, `"hint"`) })
	}
	if hints() == 0 {
		t.Fatal("the record of the worker is small enough for gossip: this test would prove nothing")
	}
	defer c.holdStreams(t, f.ids(), silent)()
	for range drains {
		took := f.drain(w, true)
		t.Logf("a drain reached the relays after %v, without the attack after %v", took.Round(time.Millisecond), calm.Round(time.Millisecond))
		if took > maxDrain {
			t.Fatalf("a drain may take %v", maxDrain)
		}
		f.drain(w, false)
	}
	for _, r := range f.Relays {
		cut := f.metrics(r.Admin, "ringway_advertise_exchange_cut_offs_total", func(series string) bool { return strings.Contains(series, `"silent"`) })
		if cut < silent-2 {
			t.Errorf("%s has counted %v silent streams that it closed", r.ID, cut)
		}
	}
	f.serves(10)
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
