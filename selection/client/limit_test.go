package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/selection"
)

// limited is the address of a relay that allows ten requests at a time on a connection.
func limited(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols, server.Config.HTTP2 = new(http.Protocols), &http.HTTP2Config{MaxConcurrentStreams: 10}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// The relays allow fewer streams than the pool plans with, and every one of the requests takes longer
// than it takes to send the others.
func TestAConnectionThatIsFullKeepsItsPlaceAndCostsNoAttempt(t *testing.T) {
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	var underWay atomic.Int64
	var seeds []string
	for range 3 {
		seeds = append(seeds, limited(t, func(http.ResponseWriter, *http.Request) {
			underWay.Add(1)
			<-gate
		}))
	}
	registry := prometheus.NewRegistry()
	c, web := running(t, Config{Seeds: seeds, Registerer: registry, RetryBudget: -1})
	settled(t, c, 3)
	var callers sync.WaitGroup
	for n := range int64(60) {
		callers.Go(func() {
			if _, _, err := get(web, "http://billing/a"); err != nil {
				t.Error(err)
			}
		})
		procs.Await(t, fmt.Sprintf("%d requests are under way", n+1), func() bool { return t.Failed() || underWay.Load() == n+1 })
	}
	if total := c.status().Connections.Total(); total > 9 { // a request that has just been sent may count twice
		t.Errorf("%d connections carry 60 requests, want 6 or a few more", total)
	}
	release()
	callers.Wait()
	for metric, labels := range map[string]string{
		"ringway_pool_evictions_total": string(relaypool.Lost), "ringway_client_retries_total": retryUnsent,
		"ringway_client_retries_refused_total": refusedBudget,
	} {
		if n := logtest.Value(t, registry, metric, labels); n > 0 {
			t.Errorf("%s{%s} is %v", metric, labels, n)
		}
	}
}

func TestRequestsThatBeginBeforeTheLimitIsKnownDoNotBlockEachOther(t *testing.T) {
	to := limited(t, func(http.ResponseWriter, *http.Request) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	known := make(chan struct{}) // the relay's first frame passes
	go func() {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(out, in); out.Close() }()
		<-known
		_, _ = io.Copy(in, out)
	}()
	c, err := New(Config{Seeds: []string{to}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.open(t.Context(), relaypool.Peer{Address: listener.Addr().String()}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 30 {
		if !conn.begin() {
			t.Fatal("the connection takes no 30 requests before the limit is known")
		}
	}
	close(known)
	procs.Await(t, "the limit is known", func() bool { return conn.Available() <= 10 })
	ctx, cancel := context.WithTimeout(t.Context(), procs.Patience)
	defer cancel()
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			defer conn.begun()
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://billing/a", nil)
			if resp, err := conn.RoundTrip(req); err != nil {
				t.Error(err)
			} else {
				resp.Body.Close()
			}
		})
	}
	callers.Wait()
}

// A connection does not know the limit before the relay's first frame: a burst may exceed it.
func TestARelayIsNotBlamedForTheRequestsBeyondItsLimit(t *testing.T) {
	tr := trip{req: httptest.NewRequest("GET", "http://billing/a", nil)}
	err := fmt.Errorf("stream 21: %w", http2.StreamError{StreamID: 21, Code: http2.ErrCodeRefusedStream})
	if o := tr.outcome(nil, err); o != selection.Shed || !unsent(err) {
		t.Errorf("outcome %v, unsent %v", o, unsent(err))
	}
	if o := tr.outcome(nil, http2.StreamError{Code: http2.ErrCodeInternal}); o != selection.Failure {
		t.Errorf("another error: %v", o)
	}
}

// A relay that stops has few requests on a connection, which is no limit of the relay.
func TestAConnectionThatTheRelayEndsShowsNoLimit(t *testing.T) {
	gate := make(chan struct{})
	var underWay atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		underWay.Add(1)
		<-gate
	}))
	server.Config.Protocols, server.Config.HTTP2 = new(http.Protocols), &http.HTTP2Config{MaxConcurrentStreams: 1000}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	release := sync.OnceFunc(func() { close(gate) })
	c, err := New(Config{Seeds: []string{server.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.open(t.Context(), relaypool.Peer{Address: server.Listener.Addr().String()}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	procs.Await(t, "the limit is stated", func() bool { return conn.Available() == 1000 })
	if !conn.begin() {
		t.Fatal("no request can begin")
	}
	var caller sync.WaitGroup
	defer caller.Wait()
	defer release()
	caller.Go(func() {
		defer conn.begun()
		req, _ := http.NewRequest("GET", "http://billing/a", nil)
		if resp, err := conn.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	})
	procs.Await(t, "the request is under way", func() bool { return underWay.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = server.Config.Shutdown(ctx) // the request goes on
	procs.Await(t, "the relay ends the connection", func() bool { return conn.Available() == 0 })
	if carries, full := conn.full(); full || carries != 0 {
		t.Errorf("full %t with %d requests", full, carries)
	}
}
