package ingress_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
)

// calls gives the service one worker over HTTP/2 for each handler: w1, w2 and so on.
func (x *trial) calls(workers ...http.HandlerFunc) {
	x.t.Helper()
	route := &routing.Route{}
	for i, handler := range workers {
		server := &httptest.Server{Config: &http.Server{Handler: handler, Protocols: new(http.Protocols)}}
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		if x.host == nil {
			server.Listener = procs.Listen(x.t)
		} else {
			var err error
			if server.Listener, err = x.host.Listen("192.0.2.1:0"); err != nil {
				x.t.Fatal(err)
			}
		}
		server.Start()
		x.t.Cleanup(server.Close)
		addr := server.Listener.Addr().String()
		pool, err := upstream.NewPool(upstream.Config{Address: addr, Protocol: advertise.H2C, Dial: x.dial()})
		if err != nil {
			x.t.Fatal(err)
		}
		x.t.Cleanup(pool.Close)
		node := fmt.Sprintf("w%d", i+1)
		route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: addr, Weight: 1, Pool: pool})
	}
	if err := x.SetRoute(route, 0); err != nil {
		x.t.Fatal(err)
	}
}

// call sends a call of gRPC.
func (x *trial) call(headers ...string) *http.Response {
	x.t.Helper()
	resp, _ := x.send("POST", "", append(headers, "Content-Type: application/grpc")...)
	return resp
}

// inHead answers calls with a status in the head, which gRPC calls Trailers-Only.
func inHead(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"], w.Header()["Grpc-Status"] = []string{"application/grpc"}, []string{status}
	}
}

// inTrailers answers calls with a message and a status behind it.
func inTrailers(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.WriteString(w, "x")
		w.Header().Set("Grpc-Status", status)
	}
}

// Failing takes no time, so a worker that fails all calls would otherwise be the best one.
func TestAWorkerThatFailsItsCallsGetsFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takesTime := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Millisecond)
			inHead("0")(w, r)
		}
		x := tryOn(t, inMemory(t), 0, breakOff, func(*ingress.Config) {})
		x.calls(takesTime, takesTime, inHead("14"))
		const calls = 300
		for range calls {
			x.call()
		}
		x.awaitInFlight(0)
		if s := x.Endpoints.Stats(x.now())[2]; s.Failures != s.Picks || s.Picks > calls/6 {
			t.Errorf("it has %d of %d calls, and has failed %d", s.Picks, calls, s.Failures)
		}
	})
}

func TestAWorkerThatFailsItsCallsIsEvicted(t *testing.T) {
	for where, broken := range map[string]http.HandlerFunc{"head": inHead("14"), "trailers": inTrailers("14")} {
		x := try(t, 0, breakOff, func(*ingress.Config) {})
		x.calls(inTrailers("0"), inTrailers("5"), broken)
		for _, preferred := range []string{"w1", "w2", "w3"} {
			x.choose("ordered;preferred=" + preferred)
			for range 100 {
				x.call()
			}
		}
		x.awaitInFlight(0)
		for i, s := range x.Endpoints.Stats(x.now()) {
			if fails := i == 2; (s.Failures > 0) != fails || (s.LastReason != "") != fails || fails && s.Picks > 10 {
				t.Errorf("in the %s: %s has %d calls, failed %d, and is evicted for %q", where, s.ID, s.Picks, s.Failures, s.LastReason)
			}
		}
	}
}

func TestOneCallFailsItsWorkerOnceOrNotAtAll(t *testing.T) {
	for status, want := range map[string]int{
		"0": 0, "1": 0, "2": 1, "3": 0, "4": 1, "5": 0, "6": 0, "7": 0, "8": 0, "9": 0, "10": 0, "11": 0, "12": 0, "13": 1, "14": 1, "15": 1, "16": 0, "17": 1, "x": 0,
	} {
		for where, handler := range map[string]http.HandlerFunc{"head": inHead(status), "trailers": inTrailers(status)} {
			x := try(t, 0, breakOff, func(*ingress.Config) {})
			x.calls(handler)
			x.call()
			if picks, failures := x.blamed(); picks != 1 || failures != want {
				t.Errorf("%s in the %s: %d failures of %d calls, want %d", status, where, failures, picks, want)
			}
		}
	}
}

func TestAWorkerIsNotBlamedForACallThatEndsAtTheClientsDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		timeout  string
		begins   bool // before the deadline
		failures int
	}{
		"less time than this relay gives":         {"500m", false, 0},
		"the time of this relay":                  {"60S", false, 1},
		"a stream that has lasted until this":     {"60S", true, 0},
		"an earlier deadline, the service's own":  {"5000m", false, 1},
		"the same, of a stream after its message": {"5000m", true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := tryOn(t, inMemory(t), 0, breakOff, func(*ingress.Config) {})
			wait := 500 * time.Millisecond
			if c.timeout == "60S" {
				wait = time.Minute
			}
			x.calls(func(w http.ResponseWriter, r *http.Request) {
				if c.begins {
					w.Header().Set("Content-Type", "application/grpc")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(wait - time.Microsecond)
					w.Header().Set(http.TrailerPrefix+"Grpc-Status", "4")
					return
				}
				time.Sleep(wait - time.Microsecond)
				inHead("4")(w, r)
			})
			x.call("Grpc-Timeout: " + c.timeout)
			if picks, failures := x.blamed(); picks != 1 || failures != c.failures {
				t.Errorf("%s: %d failures of %d calls, want %d", name, failures, picks, c.failures)
			}
		})
	}
}

func TestACircuitCountsFailedCalls(t *testing.T) {
	for status, opens := range map[string]bool{"14": true, "4": true, "0": false, "5": false, "8": false, "1": false} {
		for where, handler := range map[string]http.HandlerFunc{"head": inHead(status), "trailers": inTrailers(status)} {
			cfg := circuit.DefaultConfig()
			cfg.Period = time.Hour
			circuits, err := circuit.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			x := try(t, 0, breakOff, func(c *ingress.Config) { c.Circuits = circuits })
			x.calls(handler)
			for range 8 {
				x.call()
				x.awaitInFlight(0)
			}
			if open := x.count("ringway_relay_rejections_total", "circuit_open") > 0; open != opens {
				t.Errorf("%s in the %s: the circuit is open: %v", status, where, open)
			}
		}
	}
}
