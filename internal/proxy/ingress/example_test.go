package ingress_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// A handler with one service that has one endpoint. A router fills services in a
// relay; here it is done by hand.
func Example() {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello from the worker, "+r.Header.Get("X-Forwarded-For"))
	}))
	defer worker.Close()
	address := worker.Listener.Addr().String()
	pool, _ := upstream.NewPool(upstream.Config{Address: address})
	defer pool.Close()
	service, _ := routing.NewService("greeter", selection.DefaultConfig())
	_ = service.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Address: address, Weight: 1, Pool: pool}}}, 0)

	handler := ingress.New(ingress.Config{
		Self: "relay-1", Services: one{service}, Epoch: time.Now(), Requests: ingress.Requests{Timeout: time.Second, MaxAttempts: 5, MaxInFlight: 100},
		Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	for _, name := range []string{"greeter", "absent"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(wire.ServiceHeader, name)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 hello from the worker, 192.0.2.1
	// 404 {"error":"no worker offers or recently offered the service \"absent\": compare its name with those of `relay services`","code":"unknown_service","service":"absent"}
}
