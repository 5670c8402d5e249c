package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The service times of a backend are log-normal: most near the median, a few
// several times as long, as those of real services are.
const (
	medianServiceTime = 5 * time.Millisecond
	serviceTimeSpread = 0.35 // standard deviation of the logarithm
	// slowFactor is what the medians of a few workers are multiplied with, so
	// that the balancing has something to do.
	slowFactor = 3.0
)

// backend is the service beside a worker: it answers every request with the
// worker's name after a drawn time.
type backend struct {
	worker   string
	server   *http.Server
	socket   net.Listener
	inFlight atomic.Int64

	wg    sync.WaitGroup // the serving goroutine and one for each connection
	drawn sync.Mutex     // guards rng
	rng   *rand.Rand
	slow  float64
}

type backendConfig struct {
	// Worker is the name that is answered.
	Worker string
	// Slow multiplies every service time; 1 is as fast as most.
	Slow float64
	// Seed and Stream decide the service times.
	Seed, Stream uint64
}

// startBackend binds a free port and serves it until die.
func startBackend(cfg backendConfig) (*backend, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the service of %s: %w", cfg.Worker, err)
	}
	b := &backend{worker: cfg.Worker, socket: socket, slow: cfg.Slow, rng: rand.New(rand.NewPCG(cfg.Seed, cfg.Stream))}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state { // Close waits for no connection, so they are counted here
		case http.StateNew:
			b.wg.Add(1)
		case http.StateClosed, http.StateHijacked:
			b.wg.Done()
		}
	}}
	b.wg.Go(func() { _ = b.server.Serve(socket) }) // it ends with die, and says only that
	return b, nil
}

// Addr is where the service listens.
func (b *backend) Addr() string { return b.socket.Addr().String() }

// die closes the listener and every connection at once, whatever is in flight,
// as the kernel does for a process that was killed, and waits for what remains.
func (b *backend) die() {
	_ = b.server.Close() // it reports only what closing a socket can report
	b.wg.Wait()
}

// ServeHTTP answers after the service time, or not at all when the client or the
// backend goes first.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.inFlight.Add(1)
	served := sleep(r.Context(), b.serviceTime())
	load := b.inFlight.Add(-1) // without this request, which is over
	if !served {
		return
	}
	w.Header().Set("Ringway-Load", strconv.FormatInt(load, 10))
	_, _ = io.WriteString(w, b.worker+"\n") // the client is gone: its own affair
}

func (b *backend) serviceTime() time.Duration {
	b.drawn.Lock()
	z := b.rng.NormFloat64()
	b.drawn.Unlock()
	return time.Duration(float64(medianServiceTime) * b.slow * math.Exp(serviceTimeSpread*z))
}

// sleep waits for d and reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
