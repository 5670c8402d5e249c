package sidecar

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// A handshake is work for both ends. One for each request of a burst would end late
// for all of them.
func TestABurstOfRequestsOverMutualTLSFailsNoneAndMakesFewHandshakes(t *testing.T) {
	const burst, workers, atATime = 600, 3, 4
	var handshakes, now, most [workers]atomic.Int64
	var opened sync.Map
	pools := make([]*upstream.Pool, workers)
	for i := range workers {
		// Here and below the test requires that nothing fails on a starved machine either
		// for the number of handshakes, so no other limit may be near.
		s := start(t, func(c *Config) { c.HandshakeTimeout = patience }, serve(t, "echo", "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
		relay := source(t, s.authority, claims(identity.RoleRelay, "r1"))
		var err error
		pools[i], err = upstream.NewPool(upstream.Config{
			Address:     s.Addr().String(),
			DialTimeout: patience,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				handshakes[i].Add(1)
				defer now[i].Add(-1)
				for n := now[i].Add(1); ; {
					if m := most[i].Load(); n <= m || most[i].CompareAndSwap(m, n) {
						break
					}
				}
				var d net.Dialer
				plain, err := d.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				conn := relay.Client(plain, relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{Node: "w1"}, "http/1.1"))
				if err := conn.HandshakeContext(ctx); err != nil {
					_ = conn.Close()
					return nil, err
				}
				opened.Store(conn, nil)
				return conn, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := pools[i].Drain(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	carry := func(i int, method string) (upstream.Result, *upstream.Fault) {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		return pools[i].Carry(w, r, &upstream.Options{
			Sidecar: true, Header: []wire.Field{{Name: wire.ServiceHeader, Value: "echo"}}, Deadline: time.Now().Add(10 * patience),
		})
	}
	for _, round := range []string{"cold", "after a pause in which all connections were closed"} {
		begin := make(chan struct{})
		var requests sync.WaitGroup
		for n := range burst {
			requests.Go(func() {
				<-begin
				// GET: a connection may have been closed a moment ago, and a request that
				// must not be repeated would fail.
				if result, err := carry(n%workers, http.MethodGet); err != nil || result.Status != http.StatusOK {
					t.Errorf("%s: request %d: %v, %v", round, n, result.Status, err)
				}
			})
		}
		close(begin)
		requests.Wait()
		for i := range workers {
			if n := most[i].Load(); n > atATime {
				t.Errorf("%s: %d handshakes at a time with one worker", round, n)
			}
			if n := handshakes[i].Swap(0); n > burst/workers/2 {
				t.Errorf("%s: %d handshakes for %d requests to one worker", round, n, burst/workers)
			}
			// Nothing of the burst is left that the next request would wait for.
			result, err := carry(i, http.MethodPost)
			if err != nil || !result.Reused || handshakes[i].Load() != 0 {
				t.Errorf("%s: the next request: %+v, %v, %d handshakes", round, result, err, handshakes[i].Load())
			}
		}
		opened.Range(func(conn, _ any) bool {
			_ = conn.(net.Conn).Close()
			return true
		})
		opened.Clear()
	}
}
