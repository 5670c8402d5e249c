package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/relay/tracing"
)

// A span reaches the collector at the latest when tracing ends.
func Example() {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}))
	defer collector.Close()
	tr, err := tracing.Start(tracing.Config{
		Endpoint: collector.URL, SampleRatio: 1, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, span := tr.Tracer().Start(context.Background(), "relay echo")
	span.End()
	if err := tr.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: POST /v1/traces application/x-protobuf
}
