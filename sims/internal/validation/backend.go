package validation

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/sims/internal/queueing"
)

// workHeader says how much work a request is, in nanoseconds.
const workHeader = "Work"

// backend is the service beside a worker, as package queueing models it: it serves so many
// requests at once, in the order they came, and work takes it a time times its slowness.
type backend struct {
	slow    float64
	slots   chan struct{}
	present atomic.Int64 // requests, waiting ones included
	socket  net.Listener
	server  *http.Server
	served  chan struct{} // closed when Serve has returned

	mu   sync.Mutex // guards what follows
	late []time.Duration
}

func startBackend(slow float64) (*backend, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a backend: %w", err)
	}
	b := &backend{slow: slow, slots: make(chan struct{}, queueing.Slots), socket: socket, served: make(chan struct{})}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(b.served)
		_ = b.server.Serve(socket) // it says only that it was closed
	}()
	return b, nil
}

// addr is where it listens.
func (b *backend) addr() string { return b.socket.Addr().String() }

// die closes the listener and every connection at once, as the kernel does for a process that
// was killed.
func (b *backend) die() {
	_ = b.server.Close()
	<-b.served
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	work, err := strconv.ParseInt(r.Header.Get(workHeader), 10, 64)
	if err != nil {
		http.Error(w, "no work: "+err.Error(), http.StatusBadRequest)
		return
	}
	if work > 0 {
		b.present.Add(1)
		b.slots <- struct{}{}
		takes := time.Duration(float64(work) * b.slow)
		began := time.Now()
		time.Sleep(takes)
		late := time.Since(began) - takes
		<-b.slots
		load := b.present.Add(-1)
		w.Header().Set("Ringway-Load", strconv.FormatInt(load, 10))
		b.mu.Lock()
		b.late = append(b.late, late)
		b.mu.Unlock()
	}
	_, _ = io.WriteString(w, "done\n") // the client is gone: its own affair
}

// lateness is by how much sleeps have been too long.
func lateness(backends []*backend) (all []time.Duration) {
	for _, b := range backends {
		b.mu.Lock()
		all = append(all, b.late...)
		b.mu.Unlock()
	}
	return all
}

// startBackends starts one for each slowness; when it fails, none is left.
func startBackends(slow []float64) (all []*backend, err error) {
	for _, s := range slow {
		b, err := startBackend(s)
		if err != nil {
			for _, b := range all {
				b.die()
			}
			return nil, errors.Join(err)
		}
		all = append(all, b)
	}
	return all, nil
}
