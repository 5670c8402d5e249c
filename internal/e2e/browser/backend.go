package browser

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Backend is a service beside a worker.
type Backend struct {
	name    string
	delay   time.Duration
	failing atomic.Bool
	socket  net.Listener
	server  *http.Server
	done    chan struct{}
}

// StartBackend serves on a free port of loopback until Stop. Its answers take about
// delay.
func StartBackend(name string, delay time.Duration) (*Backend, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the service of %s: %w", name, err)
	}
	b := &Backend{name: name, delay: delay, socket: socket, done: make(chan struct{})}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(b.done)
		_ = b.server.Serve(socket) // it ends with Stop, and says only that
	}()
	return b, nil
}

// Addr is where it listens.
func (b *Backend) Addr() string { return b.socket.Addr().String() }

// Stop closes every connection at once, and waits.
func (b *Backend) Stop() {
	_ = b.server.Close() // it reports only what closing a socket can report
	<-b.done
}

// ServeHTTP answers after a time as services have it: most near the median, a few
// several times as long.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(time.Duration(float64(b.delay) * math.Exp(0.35*rand.NormFloat64())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	if b.failing.Load() {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, b.name+"\n") // the client's connection is its own affair
}
