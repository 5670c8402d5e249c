package ingress

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/relay/routing"
)

// A relay that stops, or begins, to serve a service in the middle of a request does
// not answer that nobody offers it.
func TestARequestFollowsItsServiceWhenTheRelaysRoleChanges(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()
	h := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	h.cfg.Hop = true
	service := h.cfg.Services.(only).service
	targets := service.Route().Range

	var done atomic.Bool
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for !done.Load() {
			for _, route := range []*routing.Route{{Index: -1}, {Range: targets}} {
				if err := service.SetRoute(route, 0); err != nil {
					t.Error(err)
				}
			}
		}
	})
	counts := map[int]int{}
	for deadline := time.Now().Add(30 * time.Second); counts[200] < 200 || counts[421] < 200; {
		if time.Now().After(deadline) {
			t.Fatalf("%v: this test shows nothing", counts)
		}
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set(ServiceHeader, "echo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		counts[w.Code]++
	}
	done.Store(true)
	flipping.Wait()
	if len(counts) != 2 {
		t.Errorf("answers by status: %v, want only 200 and 421", counts)
	}
}
