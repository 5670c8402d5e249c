package loadgen

import (
	"context"
	"errors"
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

	"github.com/ringway/ringway/internal/wire"
)

// Service is a server on a free port of loopback.
type Service struct {
	socket net.Listener
	server *http.Server
	wg     sync.WaitGroup // the serving goroutine and one for each connection
}

// Serve serves until Die.
func Serve(handler http.Handler) (*Service, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a service: %w", err)
	}
	s := &Service{socket: socket}
	s.server = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state { // Close does not wait for connections, so they are counted here
		case http.StateNew:
			s.wg.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.wg.Done()
		}
	}}
	s.wg.Go(func() { _ = s.server.Serve(socket) }) // it ends with Die, and its error reports only that
	return s, nil
}

// Addr returns the address of the service.
func (s *Service) Addr() string { return s.socket.Addr().String() }

// Die closes the listener and all connections immediately, whatever is in flight, as the
// kernel does for a killed process, and waits for the goroutines.
func (s *Service) Die() {
	_ = s.server.Close() // only errors of closing a socket
	s.wg.Wait()
}

// stopTimeout limits the wait for requests in flight when Run ends.
const stopTimeout = 10 * time.Second

// Run serves over HTTP/1.1 and clear-text HTTP/2 at an address until ctx ends, and finishes
// the requests in flight.
func Run(ctx context.Context, addr string, handler http.Handler) error {
	server := &http.Server{Addr: addr, Handler: handler, Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return fmt.Errorf("%w: is another process on this port?", err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		_ = server.Close() // nothing more can be done about its error
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// spread is the standard deviation of the logarithm of the service times. They are
// log-normal, like those of real services: most are near the median, a few are several times
// as long.
const spread = 0.35

// Stub answers every request with a name after a random time.
type Stub struct {
	name     string
	median   time.Duration
	inFlight atomic.Int64
	failing  atomic.Bool

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// StubConfig configures a Stub.
type StubConfig struct {
	// Name is the answer.
	Name string
	// Median is the median of the service times.
	Median time.Duration
	// Seed and Stream determine the service times.
	Seed, Stream uint64
}

// NewStub returns the handler of a Service.
func NewStub(cfg StubConfig) *Stub {
	return &Stub{name: cfg.Name, median: cfg.Median, rng: rand.New(rand.NewPCG(cfg.Seed, cfg.Stream))}
}

// Fail makes all following answers errors.
func (s *Stub) Fail() { s.failing.Store(true) }

// ServeHTTP answers after the service time, or not at all if the client disconnects or the
// service dies first.
func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.inFlight.Add(1)
	served := Sleep(r.Context(), s.serviceTime())
	load := s.inFlight.Add(-1) // without this request, which has ended
	if !served {
		return
	}
	if s.failing.Load() {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	w.Header().Set(wire.LoadHeader, strconv.FormatInt(load, 10))
	_, _ = io.WriteString(w, s.name+"\n") // an error concerns only the connection of the client
}

func (s *Stub) serviceTime() time.Duration {
	s.mu.Lock()
	z := s.rng.NormFloat64()
	s.mu.Unlock()
	return time.Duration(float64(s.median) * math.Exp(spread*z))
}

// Sleep waits for d and returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
