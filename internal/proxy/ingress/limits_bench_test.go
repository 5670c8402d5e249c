//go:build !race

package ingress_test

// As alloc_test.go: not under the race detector.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// limited are the settings that are compared with each request, by name.
func limited() map[string]func(*ingress.Config) {
	return map[string]func(*ingress.Config){
		"nothing": func(*ingress.Config) {},
		"a limit of the service": func(c *ingress.Config) {
			c.RateLimits = []ingress.RateLimit{{Service: "echo", Rate: "1000000000/s"}}
		},
		"a limit of each caller": func(c *ingress.Config) {
			c.RateLimits = []ingress.RateLimit{{Service: "*", Caller: "*", Rate: "1000000000/s"}}
		},
		"1000 blocks": func(c *ingress.Config) {
			for i := range 1000 {
				c.Blocks = append(c.Blocks, ingress.Block{Caller: fmt.Sprint("caller ", i), Service: "*", Until: time.Now().Add(time.Hour)})
			}
		},
		"1000 routes": func(c *ingress.Config) {
			for i := range 1000 {
				c.Routes = append(c.Routes, ingress.Route{Host: fmt.Sprintf("h%d.test", i), PathPrefix: "/a", Service: "echo"})
			}
		},
		"1000 routes with rates": func(c *ingress.Config) {
			for i := range 1000 {
				c.Routes = append(c.Routes, ingress.Route{Host: fmt.Sprintf("h%d.test", i), PathPrefix: "/a", Service: "echo", Rate: "1000000000/s"})
			}
		},
	}
}

// asking returns what sends one request, named by a route if there are routes.
func asking(tb testing.TB, addr string, change ...func(*ingress.Config)) func() {
	tb.Helper()
	named := true
	h := handlerFor(tb, addr, append(change, func(c *ingress.Config) { named = len(c.Routes) == 0 })...)
	r := httptest.NewRequest("GET", "http://h500.test/a/b", nil)
	r.Body = http.NoBody
	r.RemoteAddr = "192.0.2.1:1000"
	if named {
		r.Header.Set(wire.ServiceHeader, "echo")
	}
	w := discard{http.Header{}}
	return func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// BenchmarkLimits is what a handler costs with limits, blocks and routes, up to the answer that no
// worker offers the service: without sockets, whose cost varies more than what is measured.
func BenchmarkLimits(b *testing.B) {
	for name, change := range limited() {
		b.Run(name, func(b *testing.B) {
			idle, err := routing.NewService("echo", selection.DefaultConfig())
			if err == nil {
				err = idle.SetRoute(&routing.Route{}, 0)
			}
			if err != nil {
				b.Fatal(err)
			}
			ask := asking(b, "127.0.0.1:1", change, func(c *ingress.Config) { c.Services = one{idle} })
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

func TestLimitsBlocksAndRoutesAllocateNothing(t *testing.T) {
	allocations := map[string]float64{}
	for name, change := range limited() {
		carry := asking(t, quickEndpoint(t), change)
		carry() // makes the series, and the bucket of the caller
		allocations[name] = testing.AllocsPerRun(50, carry)
	}
	for name, n := range allocations {
		if n > allocations["nothing"] {
			t.Errorf("with %s a request has %v allocations, without %v", name, n, allocations["nothing"])
		}
	}
}
