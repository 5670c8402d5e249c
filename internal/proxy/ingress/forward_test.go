package ingress

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// A relay that stops, or begins, to serve a service in the middle of a request does
// not answer that no worker offers it.
func TestARequestFollowsItsServiceWhenTheRelaysRoleChanges(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()
	h := guardedHandler(t, backend.Listener.Addr(), time.Minute)
	h.cfg.FromRelay = true
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
				runtime.Gosched() // on one processor a request sees both routes, too
			}
		}
	})
	defer flipping.Wait()
	defer done.Store(true)
	counts := map[int]int{}
	for deadline := time.Now().Add(30 * time.Second); counts[200] < 200 || counts[421] < 200; {
		if time.Now().After(deadline) {
			t.Fatalf("%v: this test shows nothing", counts)
		}
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set(wire.ServiceHeader, "echo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		counts[w.Code]++
	}
	if len(counts) != 2 {
		t.Errorf("answers by status: %v, want only 200 and 421", counts)
	}
}

// lookups has a service from the n-th look on.
type lookups struct {
	service *routing.Service
	from    int
	looks   *int
}

func (l lookups) Service(name string) (*routing.Service, bool) {
	*l.looks++
	return l.service, name == l.service.Name && *l.looks >= l.from
}

func TestAServiceThatIsNotFoundIsUnknownOnlyToARelayThatIsInformedAndKnowsAnother(t *testing.T) {
	service := known(t, "echo")
	for _, c := range []struct {
		name              string
		informed, hop     bool
		empty             bool
		from              int
		status            int
		code, retryHeader string
	}{
		{"echo", true, false, false, 3, http.StatusNotFound, "unknown_service", ""},
		// The relay has known no service since its start.
		{"echo", true, false, true, 3, http.StatusServiceUnavailable, "no worker offers one: start one, or see `relay check`\",\"code\":\"no_endpoint", "1"},
		{"echo", false, false, true, 3, http.StatusServiceUnavailable, "not_ready", "1"},
		{"", true, false, true, 3, http.StatusBadRequest, "bad_request", ""},
		{"echo", true, true, true, 3, http.StatusMisdirectedRequest, "", ""},
		{"echo", false, false, false, 3, http.StatusServiceUnavailable, "not_ready", "1"},
		{"", false, false, false, 3, http.StatusBadRequest, "bad_request", ""},
		// It becomes known while the relay becomes informed; no worker takes it here.
		{"echo", true, false, false, 2, http.StatusServiceUnavailable, "no_endpoint", ""},
		// Another relay asks: there may be a third one that knows.
		{"echo", true, true, false, 3, http.StatusMisdirectedRequest, "", ""},
		{"echo", false, true, false, 3, http.StatusMisdirectedRequest, "", ""},
		{"", true, true, false, 3, http.StatusBadRequest, "bad_request", ""},
	} {
		registry := prometheus.NewRegistry()
		looks := 0
		h := New(Config{
			Self: "r1", Services: lookups{service, c.from, &looks}, Informed: func() bool { return c.informed }, Empty: func() bool { return c.empty }, FromRelay: c.hop,
			Epoch: time.Now(), Requests: Requests{Timeout: time.Second, MaxAttempts: 3, MaxInFlight: 10}, Metrics: NewMetrics(registry), Logger: slog.New(slog.DiscardHandler),
		})
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(wire.ServiceHeader, c.name)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.code) || w.Header().Get("Retry-After") != c.retryHeader {
			t.Errorf("%+v: %d %v %s", c, w.Code, w.Header(), w.Body)
		}
	}
}
