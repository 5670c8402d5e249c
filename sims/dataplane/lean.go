package main

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// runLean serves listen with net/http and the upstream pools only, in round-robin
// order: the relay's upstream engine without routing and selection.
func runLean(listen string) error {
	var pools []*upstream.Pool
	for _, addr := range backendAddresses() {
		p, err := upstream.NewPool(upstream.Config{Address: addr})
		if err != nil {
			return err
		}
		pools = append(pools, p)
	}
	var turn atomic.Uint64
	srv := &http.Server{
		Addr: listen, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			client, _, _ := net.SplitHostPort(r.RemoteAddr)
			p := pools[turn.Add(1)%uint64(len(pools))]
			_, err := p.Carry(w, r, upstream.Exchange{ForwardedFor: client, Deadline: time.Now().Add(30 * time.Second)})
			if e, ok := err.(*upstream.Error); ok {
				if e.Committed() {
					panic(http.ErrAbortHandler)
				}
				http.Error(w, e.Error(), http.StatusBadGateway)
			}
		}),
	}
	return srv.ListenAndServe()
}
