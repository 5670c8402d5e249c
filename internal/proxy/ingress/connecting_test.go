package ingress_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// The endpoints answer immediately, but each request needs a new connection, and from some
// moment on these open slowly or, with never true, not at all.
func TestTheWaitForConnectionsLimitsAServiceOnlyIfTheyNeverOpen(t *testing.T) {
	for _, never := range []bool{false, true} {
		t.Run(fmt.Sprintf("never %t", never), func(t *testing.T) {
			x := try(t, 1, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }, func(cfg *ingress.Config) {
				cfg.AdaptiveInFlight, cfg.MaxInFlight, cfg.MaxAttempts = true, 1000, 1
			})
			const workers, requests = 16, 60 // of each worker at most four connections open at a time
			dialTimeout := time.Minute
			if never {
				dialTimeout = 200 * time.Millisecond
			}
			var slow atomic.Bool
			var dials sync.WaitGroup
			route := &routing.Route{}
			for i := range workers {
				pool, err := upstream.NewPool(upstream.Config{
					Address: x.Service.Route().Range[0].Address, DialTimeout: dialTimeout,
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						dials.Add(1)
						defer dials.Done()
						if slow.Load() && never {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						if slow.Load() {
							time.Sleep(150 * time.Millisecond)
						}
						return new(net.Dialer).DialContext(ctx, network, address)
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pool.Close)
				node := fmt.Sprintf("s%d", i)
				route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: "slow", Weight: 1, Pool: pool})
			}
			if err := x.Service.SetRoute(route, 0); err != nil {
				t.Fatal(err)
			}
			waiting := &x.Service.Waiting
			tick := func(n int) { waiting.Tick(time.Duration(n)*250*time.Millisecond, workers) }
			burst := func() {
				var all sync.WaitGroup
				for range requests {
					all.Go(func() { // returns after the request is counted
						r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
						r.Header.Set(wire.ServiceHeader, "echo")
						x.served.ServeHTTP(httptest.NewRecorder(), r)
					})
				}
				all.Wait()
				dials.Wait() // a dial that outlives its request would fail the next one early
			}
			tick(0)
			burst()
			tick(1)
			slow.Store(true)
			for n := range 2 {
				for range 10 * requests { // many more wait, each time
					if !waiting.Enter() {
						t.Fatal("the limit came before the first slow answer")
					}
				}
				burst()
				tick(2 + n)
			}
			if limited := waiting.Limit() > 0; limited != never {
				t.Errorf("limit %d while the connections open %s", waiting.Limit(), map[bool]string{false: "slowly", true: "never"}[never])
			}
		})
	}
}

// A lost packet, or a busy host, may cost one connection its time. The only worker is worth another.
func TestTheOnlyWorkerIsConnectedToOnceMoreIfAConnectionTookTooLong(t *testing.T) {
	t.Parallel()
	for late, status := range map[int64]int{1: http.StatusOK, 2: http.StatusBadGateway} {
		t.Run(fmt.Sprint(late, " late"), func(t *testing.T) {
			t.Parallel()
			x := try(t, 1, func(int64, http.ResponseWriter, *http.Request) {}, func(*ingress.Config) {})
			var dials atomic.Int64
			pool, err := upstream.NewPool(upstream.Config{
				Address: x.Service.Route().Range[0].Address, DialTimeout: time.Second, // also for a dial that succeeds
				Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) <= late {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			route := &routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: "slow", Weight: 1, Pool: pool}}}
			if err := x.SetRoute(route, 0); err != nil {
				t.Fatal(err)
			}
			if resp, body := x.send(http.MethodPost, "hello"); resp.StatusCode != status || dials.Load() != 2 {
				t.Errorf("%s %s after %d dials", resp.Status, body, dials.Load())
			}
		})
	}
}
