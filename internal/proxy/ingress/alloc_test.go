//go:build !race

package ingress_test

// Under the race detector sync.Pool forgets at random, so allocations are
// counted without it; make test runs this package both ways.

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

func TestAdmissionAllocatesWhatCarryingDoesAndNoMore(t *testing.T) {
	h := handlerFor(t, quickEndpoint(t))
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.NoBody
	r.Header.Set(wire.ServiceHeader, "echo")
	r.Header.Set("Traceparent", callers) // a relay that traces nothing does not read it
	r.Header.Set("Tracestate", "a=1")
	w := discard{http.Header{}}
	allocs := testing.AllocsPerRun(200, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
	if allocs > maxAdmissionAllocs {
		t.Errorf("%v allocations for a request, at most %d are allowed", allocs, maxAdmissionAllocs)
	}
}

// From the socket of the client to that of the endpoint and back: the head of an answer is
// copied into the buffer of the client's connection, and the head of a request needs a string
// unless it repeats the one before.
func TestAnExchangeAllocatesAtMostTheTextOfItsRequest(t *testing.T) {
	for _, e := range exchanges {
		x := newExchanging(t, e.path, e.field, e.answer)
		for range 100 {
			x.once()
		}
		if allocs := testing.AllocsPerRun(1000, x.once); allocs > e.allocs {
			t.Errorf("%s: %v allocations for a request, at most %v are allowed", e.name, allocs, e.allocs)
		}
	}
}

func TestACookieOfAnotherServiceCostsNothing(t *testing.T) {
	h := handlerFor(t, quickEndpoint(t), func(c *ingress.Config) {
		c.Cookies = ingress.NewCookies(ingress.CookieConfig{Names: map[string]string{"billing": "sid"}, Keys: key("k"), Registerer: prometheus.NewRegistry()})
	})
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.NoBody
	r.Header.Set(wire.ServiceHeader, "echo")
	r.Header.Set("Cookie", "sid=x")
	w := discard{http.Header{}}
	allocs := testing.AllocsPerRun(200, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
	if allocs > maxAdmissionAllocs || w.header["Set-Cookie"] != nil {
		t.Errorf("%v allocations for a request, at most %d are allowed; %v", allocs, maxAdmissionAllocs, w.header)
	}
}

func TestARecordOutsideOfTheSampleAllocatesNoMore(t *testing.T) {
	for _, sample := range []float64{0, 0.01, 1} {
		records, err := requestlog.New(requestlog.Config{File: os.DevNull, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if err := records.Start(); err != nil {
			t.Fatal(err)
		}
		h := handlerFor(t, quickEndpoint(t), func(c *ingress.Config) { c.Records, c.Record.Sample = records, sample })
		r := httptest.NewRequest("GET", "/", nil)
		r.Body = http.NoBody
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Header.Set("X-Request-Id", "the client's")
		w := discard{http.Header{}}
		allocs := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		})
		if allocs > maxAdmissionAllocs {
			t.Errorf("a sample of %v: %v allocations for a request, at most %d are allowed", sample, allocs, maxAdmissionAllocs)
		}
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAStrategyAllocatesNoMore(t *testing.T) {
	f := newFront(t, 0, http.NotFoundHandler())
	pool, err := upstream.NewPool(upstream.Config{Address: quickEndpoint(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	route := &routing.Route{}
	for _, node := range []string{"w1", "w2", "w3"} {
		route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Weight: 1, Pool: pool})
	}
	if err := f.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	h := f.handlerWith(slog.LevelInfo)
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.NoBody
	r.Header.Set(wire.ServiceHeader, "echo")
	r.Header.Set(wire.KeyHeader, "alice")
	w := discard{http.Header{}}
	measure := func(text string) float64 {
		f.choose(text)
		return testing.AllocsPerRun(200, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		})
	}
	normal := measure("p2c")
	for _, text := range []string{"stable", "stable-sha256", "ordered;preferred=w2", "random", "slots"} {
		if allocs := measure(text); allocs > normal {
			t.Errorf("%s: %v allocations for a request, p2c makes %v", text, allocs, normal)
		}
	}
}

// maxAdmissionAllocs are the carrying's: the answer's header values and its exchange.
const maxAdmissionAllocs = 2
