package ingress_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// refusingStreams is a service over HTTP/2 that refuses n streams, when their body has
// arrived, and then answers each with its body.
func refusingStreams(t *testing.T, n int64) (addr string) {
	t.Helper()
	var left atomic.Int64
	left.Store(n)
	ln := procs.Listen(t)
	procs.Accept(t, ln, func(nc net.Conn) { refuse(nc, &left) })
	return ln.Addr().String()
}

func refuse(nc net.Conn, left *atomic.Int64) {
	if _, err := io.ReadFull(nc, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(nc, bufio.NewReader(nc))
	_ = fr.WriteSettings()
	var ok bytes.Buffer
	_ = hpack.NewEncoder(&ok).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	bodies := map[uint32][]byte{}
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.DataFrame:
			bodies[id] = append(bodies[id], frame.Data()...)
		}
		if flags := frame.Header().Flags; id == 0 || !flags.Has(http2.FlagDataEndStream) || frame.Header().Type > http2.FrameHeaders {
			continue
		}
		if left.Add(-1) >= 0 {
			_ = fr.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			continue
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: ok.Bytes(), EndHeaders: true})
		_ = fr.WriteData(id, true, bodies[id])
	}
}

// A refusal is an attempt like any other in the limits, and a sign of load like 503 with
// Retry-After in the selection.
func TestARefusedStreamGoesToAnotherWorkerOrOnceMoreToTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		workers  int
		refusals int64
		change   func(*ingress.Config)
		status   int
		attempts string
	}{
		"one worker":             {1, 1, nil, 200, "2"},
		"one that always does":   {1, 100, nil, 502, "2"},
		"two workers":            {2, 1, nil, 200, "2"},
		"all do once":            {3, 3, nil, 200, "4"},
		"all do always":          {3, 100, nil, 502, "4"},
		"one attempt is allowed": {1, 1, func(c *ingress.Config) { c.MaxAttempts = 1 }, 502, "1"},
		"no budget":              {1, 1, func(c *ingress.Config) { c.RetryBudget = 0 }, 502, "1"},
		"retry=connect": {1, 1, func(c *ingress.Config) {
			c.Policies.ByService = map[string]advertise.Policy{"echo": {Retry: advertise.RetryConnect}}
		}, 200, "2"},
		"retry=never": {1, 1, func(c *ingress.Config) {
			c.Policies.ByService = map[string]advertise.Policy{"echo": {Retry: advertise.RetryNever}}
		}, 502, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			x := try(t, 0, nil, func(cfg *ingress.Config) {
				if c.change != nil {
					c.change(cfg)
				}
			})
			addr := refusingStreams(t, c.refusals)
			route := &routing.Route{}
			for i := range c.workers {
				pool, err := upstream.NewPool(upstream.Config{Address: addr, Protocol: advertise.H2C})
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Drain(t.Context())
				node := fmt.Sprintf("w%d", i+1)
				route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: addr, Weight: 1, Pool: pool})
			}
			if err := x.SetRoute(route, 0); err != nil {
				t.Fatal(err)
			}
			resp, body := x.send(http.MethodPost, "hello")
			want := min(c.refusals, int64(c.attempts[0]-'0')) // attempts that were refused
			if resp.StatusCode != c.status || c.status == 200 && (body != "hello" || resp.Header.Get(wire.AttemptsHeader) != c.attempts) {
				t.Errorf("%s %v %s", resp.Status, resp.Header, body)
			}
			if picks, failures := x.blamed(); fmt.Sprint(picks) != c.attempts || failures != 0 {
				t.Errorf("%d picks, want %s; %d failures", picks, c.attempts, failures)
			}
			if n := x.count("ringway_relay_retries_total", "refused"); int64(n) != min(want, int64(c.attempts[0]-'1')) {
				t.Errorf("%d retries after a refusal", n)
			}
		})
	}
}
