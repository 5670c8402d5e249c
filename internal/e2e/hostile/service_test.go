//go:build linux

package hostile

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// endless is how many bytes /endless answers with: more than all buffers on the way
// hold.
const endless = 64 << 20

// startService is the service of a worker:
//
//	/          the name of the worker
//	/absorb    the same, when the body has ended
//	/fail      500
//	/load      the name, with a false load, the largest
//	/endless   more than a client that does not read can take
func startService(t *testing.T, name string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	mux.HandleFunc("/absorb", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, name)
	})
	mux.HandleFunc("/told", func(w http.ResponseWriter, r *http.Request) { _ = r.Header.Write(w) })
	mux.HandleFunc("/fail", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	mux.HandleFunc("/load", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Ringway-Load", "999999999")
		_, _ = io.WriteString(w, name)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 64<<10)
		for range endless / len(block) {
			if _, err := w.Write(block); err != nil || r.Context().Err() != nil {
				return
			}
		}
	})
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server
}

// bait is a listener where nothing of the fleet may ever connect.
type bait struct {
	addr        string
	connections atomic.Int64
	requests    atomic.Int64
}

// listenBait answers whatever comes in with 200, as an attacker's service would.
func listenBait(t *testing.T, host string) *bait {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bait{addr: listener.Addr().String()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b.requests.Add(1)
		_, _ = io.WriteString(w, "bait")
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			b.connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return b
}

// untouched expects that nothing connected.
func (b *bait) untouched(t *testing.T, what string) {
	t.Helper()
	if n := b.connections.Load(); n > 0 {
		t.Errorf("%d connections reached %s", n, what)
	}
}
