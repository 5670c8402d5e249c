package downstream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/ringway/ringway/internal/proxy/downstream"
)

func Example() {
	server := downstream.New(downstream.Config{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "hello from %s", r.URL.Path) }),
		Logger:  slog.New(slog.DiscardHandler),
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://" + listener.Addr().String() + "/here")
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, string(body))

	fmt.Println(server.Shutdown(context.Background())) // answers what is in flight first
	fmt.Println(<-served)
	// Output:
	// 200 hello from /here
	// <nil>
	// http: Server closed
}
