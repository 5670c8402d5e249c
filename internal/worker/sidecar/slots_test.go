package sidecar

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/wire"
)

func TestTheLoadIsTheOtherRequestsOfTheServiceWhenTheAnswerBegins(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Do") {
		case "hold":
			arrived <- struct{}{}
			<-release
		case "break":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "shed":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	s := start(t, nil, serve(t, "echo", "", handler), serve(t, "other", "", handler))
	client := s.relay(t)
	load := func(do, service string) string {
		resp, _ := answer(t, client, s.request(t, "GET", service, nil, "X-Do: "+do))
		return strings.Join(resp.Header.Values(wire.LoadHeader), ",")
	}
	held := make(chan string, 2)
	for range 2 {
		req := s.request(t, "GET", "echo", nil, "X-Do: hold")
		go func() {
			resp, err := client.Do(req)
			if err != nil {
				held <- err.Error()
				return
			}
			_ = resp.Body.Close()
			held <- resp.Header.Get(wire.LoadHeader)
		}()
		within(t, arrived, "a held request")
	}
	if got := load("", "echo"); got != "2" {
		t.Errorf("load %q next to 2 requests", got)
	}
	if got := load("", "other"); got != "0" {
		t.Errorf("load %q of a service with no other request", got)
	}
	if got := load("shed", "echo"); got != "2" {
		t.Errorf("load %q of a service that is busy", got)
	}
	// A relay would take a broken service for a busy one.
	if got := load("break", "echo"); got != "" {
		t.Errorf("load %q of a service that is broken", got)
	}
	if n, _ := metricOf(t, s.registry, "ringway_sidecar_in_flight", "echo"); n != 2 {
		t.Errorf("%v in flight", n)
	}
	close(release)
	for range 2 {
		// The load is that of the end, not of the beginning.
		if got := within(t, held, "a held request's answer"); got != "1" && got != "0" {
			t.Errorf("load %q of a held request", got)
		}
	}
}

func TestNoMoreThanTheSlotsOfAnEndpointAreInFlightThere(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	service := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	service.Slots = 2
	for _, protocol := range []string{"http/1.1", "h2"} {
		s := start(t, nil, service)
		client := s.relay(t, protocol)
		ended := make(chan int)
		hold := func() {
			req := s.request(t, "POST", "echo", strings.NewReader("x"))
			go func() {
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					ended <- 0
					return
				}
				_ = resp.Body.Close()
				ended <- resp.StatusCode
			}()
			within(t, arrived, "a request that has a slot")
		}
		refused := func() {
			t.Helper()
			resp, body := answer(t, client, s.request(t, "POST", "echo", strings.NewReader("small")))
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(wire.FailedHeader) != wire.FailedFull ||
				resp.Header.Get(wire.LoadHeader) != "2" || !strings.Contains(body, `"code":"overloaded"`) {
				t.Errorf("%s: one more than the slots: %s %v %s", protocol, resp.Status, resp.Header, body)
			}
		}
		hold()
		hold()
		refused()
		refused()
		release <- struct{}{}
		if status := within(t, ended, "an answer"); status != http.StatusOK {
			t.Errorf("%s: %d", protocol, status)
		}
		hold() // in the slot that has become free
		refused()
		if n, _ := metricOf(t, s.registry, "ringway_sidecar_requests_total", "full", "echo"); n != 3 {
			t.Errorf("%s: %v refusals are counted, not 3", protocol, n)
		}

		service.Slots = 3
		s.set(t, service)
		hold() // more slots count immediately, and so do fewer
		service.Slots = 2
		s.set(t, service)
		release <- struct{}{}
		within(t, ended, "an answer")
		refused()
		s.set(t)
		s.set(t) // gone, and its requests go on
		s.set(t, service)
		refused()
		release <- struct{}{}
		release <- struct{}{}
		within(t, ended, "an answer")
		within(t, ended, "an answer")
		if n, _ := metricOf(t, s.registry, "ringway_sidecar_in_flight", "echo"); n != 0 {
			t.Errorf("%s: %v in flight at the end", protocol, n)
		}
	}
}

func TestTheOperatorsSlotsBindAlsoWhereTheSidecarAllowsMore(t *testing.T) {
	for advertised, slots := range map[int32]int{0: 1, 100: 1, 1: 9} { // of the service, and of the operator: one request in any case
		arrived, release := make(chan struct{}), make(chan struct{})
		service := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-release
		})
		service.Slots = advertised
		f := newFleet(t)
		f.policies = []string{fmt.Sprintf("echo=slots=%d", slots)}
		r := f.relay("r1", false)
		f.worker("w1", service)
		r.settled(t, "echo", 1)
		held := make(chan int, 1)
		go func() {
			resp, err := http.DefaultClient.Do(r.request(t, "GET", "echo", "/", nil))
			if err != nil {
				t.Error(err)
				held <- 0
				return
			}
			_ = resp.Body.Close()
			held <- resp.StatusCode
		}()
		within(t, arrived, "a request")
		resp, body := answer(t, http.DefaultClient, r.request(t, "GET", "echo", "/", nil))
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "overloaded") {
			t.Errorf("%d slots, by the operator %d: a second request: %s %s", advertised, slots, resp.Status, body)
		}
		release <- struct{}{}
		if status := within(t, held, "the first answer"); status != http.StatusOK {
			t.Errorf("%d slots, by the operator %d: the first request: %d", advertised, slots, status)
		}
	}
}

func TestSlotsAreCountedExactlyUnderConcurrentRequests(t *testing.T) {
	const slots, requests = 3, 200
	var now, most, accepted atomic.Int64
	service := serve(t, "echo", "", func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		accepted.Add(1)
		now.Add(-1)
	})
	service.Slots = slots
	s := start(t, nil, service)
	client := s.relay(t, "h2")
	answer(t, client, s.request(t, "GET", "echo", nil)) // opens the connection that all share
	accepted.Store(0)
	var wg sync.WaitGroup
	var full atomic.Int64
	for range requests {
		req := s.request(t, "GET", "echo", nil)
		wg.Go(func() {
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.Header.Get(wire.FailedHeader) == wire.FailedFull {
				full.Add(1)
			}
		})
	}
	wg.Wait()
	if most.Load() > slots || accepted.Load()+full.Load() != requests || accepted.Load() < slots {
		t.Errorf("%d at once with %d slots; %d accepted and %d refused of %d", most.Load(), slots, accepted.Load(), full.Load(), requests)
	}
}

func TestAServicesOwn429IsNotTheSidecars(t *testing.T) {
	service := serve(t, "echo", "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.FailedHeader, wire.FailedFull) // only a sidecar's word counts
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	service.Slots = 1
	s := start(t, nil, service)
	for _, protocol := range []string{"http/1.1", "h2"} {
		resp, _ := answer(t, s.relay(t, protocol), s.request(t, "GET", "echo", nil))
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(wire.FailedHeader) != "" || resp.Header.Get("X-Kept") != "yes" {
			t.Errorf("%s: %s %v", protocol, resp.Status, resp.Header)
		}
	}
}

// faultyWriter panics when an answer begins.
type faultyWriter struct{ http.ResponseWriter }

func (faultyWriter) WriteHeader(int) { panic("a fault of this program") }

// The server logs a panic and goes on.
func TestAPanicFreesTheSlotOfItsRequest(t *testing.T) {
	echo := serve(t, "echo", advertise.HTTP1, func(http.ResponseWriter, *http.Request) {})
	echo.Slots = 1
	s := start(t, nil, echo)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the answer caused no panic")
			}
		}()
		s.serve(faultyWriter{httptest.NewRecorder()}, s.request(t, "GET", "echo", nil))
	}()
	if n := (*s.services.Load())["echo"].inFlight.Load(); n != 0 {
		t.Errorf("%d slots are in use without a request", n)
	}
}
