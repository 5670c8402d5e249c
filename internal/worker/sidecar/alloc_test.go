//go:build !race

package sidecar

// Under the race detector sync.Pool forgets at random, so allocations are
// counted without it; make test runs this package both ways.

import (
	"net/http"
	"testing"

	"github.com/ringway/ringway/internal/wire"
)

func TestTheHandlerAllocatesWhatCarryingDoesAndTheValueOfOneHeader(t *testing.T) {
	s := start(t, nil, quick(t))
	r, w := get(), discard{http.Header{}}
	r.Header.Set(wire.ServiceHeader, "echo")
	allocs := testing.AllocsPerRun(200, func() {
		clear(w.header)
		s.serve(w, r)
	})
	if allocs > maxHandlerAllocs {
		t.Errorf("%v allocations for a request, at most %d are allowed", allocs, maxHandlerAllocs)
	}
}

// maxHandlerAllocs are the carrying's two, and the value of Ringway-Load.
const maxHandlerAllocs = 3
