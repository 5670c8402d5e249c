package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// A handler that knows its endpoint and leaves the bytes to the pool.
func Example() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Ringway-Load", "12")
		fmt.Fprintf(w, "hello %s", r.Header.Get("X-Forwarded-Proto"))
	}))
	defer endpoint.Close()

	pool, err := upstream.NewPool(upstream.Config{Address: strings.TrimPrefix(endpoint.URL, "http://")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, fault := pool.Carry(w, r, &upstream.Options{
			Header: []wire.Field{{Name: "X-Forwarded-Proto", Value: "http"}},
		})
		if fault != nil {
			if fault.Committed() {
				panic(http.ErrAbortHandler)
			}
			http.Error(w, fault.Error(), http.StatusBadGateway)
			return
		}
		fmt.Println("status", res.Status, "load", res.Load, "bytes", res.BytesOut)
	}))
	defer relay.Close()

	resp, err := relay.Client().Get(relay.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("%s, load header %q\n", body, resp.Header.Get("Ringway-Load"))
	// Unordered output:
	// status 200 load 12 bytes 10
	// hello http, load header ""
}
