//go:build !race

package ingress_test

// Under the race detector sync.Pool forgets at random, so allocations are
// counted without it; make test runs this package both ways.

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ringway/ringway/internal/relay/ingress"
)

func TestAdmissionAllocatesWhatCarryingDoesAndNoMore(t *testing.T) {
	h := handlerFor(t, quickEndpoint(t))
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.NoBody
	r.Header.Set(ingress.ServiceHeader, "echo")
	w := discard{http.Header{}}
	allocs := testing.AllocsPerRun(200, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
	if allocs > maxAdmissionAllocs {
		t.Errorf("%v allocations for a request, at most %d are allowed", allocs, maxAdmissionAllocs)
	}
}

// maxAdmissionAllocs are the carrying's: the answer's header values and its exchange.
const maxAdmissionAllocs = 2
