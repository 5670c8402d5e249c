package ingress

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/wire"
)

func TestACallThatFailsHereGetsAStatusOfGRPC(t *testing.T) {
	for code := range statusOf {
		if _, ok := callStatus[code]; !ok && code != codeMisdirected {
			t.Errorf("%s has no status of gRPC", code)
		}
	}
	h := New(Config{
		Self: "r1", Services: lookups{known(t, "echo"), 9, new(int)}, Informed: func() bool { return false },
		Epoch: time.Now(), Requests: Requests{Timeout: time.Second, MaxAttempts: 3, MaxInFlight: 10}, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	ask := func(proto int, kind string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/svc/Method", strings.NewReader("x"))
		r.ProtoMajor = proto
		r.Header.Set(wire.ServiceHeader, "other")
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, kind := range []string{"application/grpc", "application/grpc+proto", "application/grpc; charset=x"} {
		w := ask(2, kind)
		if w.Code != 200 || w.Header().Get("Grpc-Status") != "14" || w.Header().Get("Grpc-Message") != "this relay does not know yet which services there are" ||
			w.Header().Get("Content-Type") != "application/grpc" || w.Header().Get("Retry-After") != "1" || w.Body.Len() > 0 {
			t.Errorf("%s: %d %v %s", kind, w.Code, w.Header(), w.Body)
		}
	}
	// grpc-web has its trailers in the body, and over HTTP/1.1 there is no gRPC.
	for kind, proto := range map[string]int{"application/grpc-web": 2, "application/grpc": 1, "application/json": 2} {
		if w := ask(proto, kind); w.Code != http.StatusServiceUnavailable || w.Header().Get("Grpc-Status") != "" {
			t.Errorf("%s over HTTP/%d: %d %v", kind, proto, w.Code, w.Header())
		}
	}
	h.cfg.FromRelay = true // the relay that has the client translates
	if w := ask(2, "application/grpc"); w.Header().Get("Grpc-Status") != "" {
		t.Errorf("between relays: %v", w.Header())
	}
}

func TestTheMessageOfACallHasNoBytesThatGRPCForbids(t *testing.T) {
	if got, want := callMessage("100 % für\n\x7f"), "100 %25 f%C3%BCr%0A%7F"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Packets of this relay are lost: its requests fail or wait, whatever their service does.
func TestARelayThatReachesTooFewMembersBlamesItselfAndNotTheService(t *testing.T) {
	for _, c := range []struct {
		reason   string
		inFlight int
		code     wire.Code
		text     string
	}{
		{"", 10, wire.CodeNoEndpoint, "no worker offers this service"},
		{"hardly reaches any worker", 10, wire.CodeNoEndpoint, "this relay reaches too few"},
		{"", 0, wire.CodeOverloaded, "as many as it takes"},
		{"hardly reaches any worker", 0, wire.CodeNotReady, "this relay reaches too few"},
	} {
		h := New(Config{
			Self: "r1", Services: lookups{known(t, "echo"), 0, new(int)}, Unreached: func() string { return c.reason }, Epoch: time.Now(),
			Requests: Requests{Timeout: time.Second, MaxAttempts: 3, MaxInFlight: c.inFlight, ExposeRouteHeaders: true}, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		})
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(wire.ServiceHeader, "echo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if body := w.Body.String(); w.Code != 503 || !strings.Contains(body, string(c.code)) || !strings.Contains(body, c.text) || !strings.Contains(body, c.reason) {
			t.Errorf("%+v: %d %s", c, w.Code, body)
		}
	}
}
