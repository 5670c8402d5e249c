package ingress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/circuit"
)

type only struct{ service *routing.Service }

func (o only) Service(string) (*routing.Service, bool) { return o.service, true }

// What each way for a request to end means to the circuit of its caller: seven that end so,
// and then one that could be answered.
func TestOnlyWhatTheServiceFailsAtOpensACircuit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		open   bool
	}{
		"it answers":         {func(http.ResponseWriter, *http.Request) {}, false},
		"it says no":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		"it is broken":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, true},
		"it sheds load":      {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "1"); w.WriteHeader(503) }, false},
		"it is unavailable":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, true},
		"it hangs up":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"it breaks off":      {breakOff, true},
		"it takes too long":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true},
		"the client is gone": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := httptest.NewUnstartedServer(c.answer)
			backend.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			backend.Start()
			defer backend.Close()
			timeout := time.Minute
			if name == "it takes too long" {
				timeout = 20 * time.Millisecond
			}
			h := guardedHandler(t, backend.Listener.Addr(), timeout)
			send := func(ctx context.Context) (status int) {
				r := httptest.NewRequestWithContext(ctx, "POST", "/", http.NoBody)
				r.Header.Set(ServiceHeader, "echo")
				r.Header.Set(CallerHeader, "web")
				w := httptest.NewRecorder()
				defer func() {
					if recover() != nil {
						status = 0 // the answer broke off
					}
				}()
				h.ServeHTTP(w, r)
				return w.Code
			}
			for range 7 {
				ctx, cancel := context.WithCancel(t.Context())
				if name == "the client is gone" {
					time.AfterFunc(time.Millisecond, cancel)
				}
				send(ctx)
				cancel()
			}
			_, err := h.cfg.Circuits.Allow("web", "echo", "")
			if open := err != nil; open != c.open {
				t.Errorf("open: %v, want %v", open, c.open)
			}
		})
	}
}

// breakOff begins an answer and does not end it.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("not all of it"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func guardedHandler(t *testing.T, addr net.Addr, timeout time.Duration) *Handler {
	t.Helper()
	pool, err := upstream.NewPool(upstream.Config{Address: addr.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := service.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: addr.String(), Weight: 1, Pool: pool}}}, 0); err != nil {
		t.Fatal(err)
	}
	cfg := circuit.DefaultConfig()
	cfg.Period = time.Hour
	circuits, err := circuit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Self: "r1", Services: only{service}, Epoch: time.Now(), Timeout: timeout, MaxAttempts: 1, MaxInFlight: 100,
		Circuits: circuits, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
}

func TestALongNameIsCutAndNoNameIsNobody(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	if got := callerOf(r); got != "" {
		t.Errorf("%q", got)
	}
	r.Header.Set(CallerHeader, strings.Repeat("x", 1000))
	if got := callerOf(r); len(got) != maxCaller {
		t.Errorf("%d bytes, want %d", len(got), maxCaller)
	}
}
