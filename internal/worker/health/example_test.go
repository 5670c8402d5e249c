package health_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/ringway/ringway/internal/worker/health"
)

func Example() {
	var broken atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "the database is gone", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	check, err := health.ParseCheck("http:/healthz;interval=50ms;fall=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	check.Address = server.Listener.Addr().String()

	ctx, stop := context.WithCancel(context.Background())
	checker, err := health.New(health.Config{Name: "chat", Check: check, OnChange: func(s health.Status) {
		fmt.Println("healthy:", s.Healthy)
		broken.Store(true)
		if !s.Healthy {
			stop()
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(checker.Run(ctx))
	// Output:
	// healthy: true
	// healthy: false
	// <nil>
}

// What a check looks like in a configuration.
func ExampleParseCheck() {
	check, err := health.ParseCheck("grpc:chat.Chat;interval=500ms")
	fmt.Println(check.Kind, check.Service, check.Interval, check.Timeout, check.Rise, check.Fall, check.StartGrace, err)
	_, err = health.ParseCheck("http:healthz;fall=0")
	fmt.Println(err)
	// Output:
	// grpc chat.Chat 500ms 500ms 2 3 10s <nil>
	// health check "http:healthz": fall 0: want 1 to 100; path "healthz": want a path from the root such as /healthz, without spaces, at most 1024 bytes; write tcp, http:/path or grpc:service, with options: http:/healthz;interval=2s;timeout=1s;rise=2;fall=3;grace=10s
}
