package advertise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// Server is the server of a service: *http.Server, *grpc.Server, or one of its own that stops by
// Shutdown(context.Context) error, or by GracefulStop() and Stop().
type Server interface {
	Serve(net.Listener) error
}

// Serve is Run with the server of the offered services, which listens on the socket from the
// start. When ctx ends, the services drain, this process leaves the cluster, and the server ends
// its requests in flight, for up to 30 s. If the server fails, the services are withdrawn. An
// http.Server also reports to relays how many requests it has in flight, and with an Identity refuses
// those above the Slots of their service. Of other servers, such as a grpc.Server, each relay counts
// only the requests that it has sent itself.
//
// With an Identity the socket accepts only relays and observers of the cluster, over mutual TLS,
// and every service must be Secured, because such members use no other. The handler then may believe
// Ringway-Caller and X-Forwarded-For. The protocol of the services must be one that the server
// speaks: H2C stands for HTTP/2, also within TLS.
//
// Call Serve once, in place of Run. The error is nil after an orderly stop.
func (a *Advertiser) Serve(ctx context.Context, socket net.Listener, server Server) error {
	stop, err := stopper(server)
	if err == nil {
		a.setting.Lock()
		a.server = server
		err = a.checkSecured(a.offered)
		a.setting.Unlock()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("advertiser %q: %w", a.cfg.ID, err), socket.Close(), a.Close())
	}
	socket = handshake.Lasting(socket, a.cfg.Logger)
	if web, ok := server.(*http.Server); ok {
		next := web.Handler
		if next == nil {
			next = http.DefaultServeMux
		}
		web.Handler = &loadHandler{next: next, slots: a.slotsOf}
		if a.cfg.Identity != nil {
			endInOrder(web, handshake.UntilRenewal(a.cfg.Identity))
		}
	}
	offering, withdraw := context.WithCancel(ctx)
	defer withdraw()
	var running sync.WaitGroup
	defer running.Wait()
	if source := a.cfg.Identity; source != nil {
		admission := a.admit(socket, source)
		running.Go(admission.Run)
		socket = admission
	}
	served := make(chan error, 1)
	running.Go(func() {
		served <- server.Serve(socket)
		withdraw()
	})
	err = a.Run(offering)
	select {
	case cause := <-served:
		return errors.Join(err, fmt.Errorf("advertiser %q: the server ended: %w", a.cfg.ID, cause), socket.Close())
	default:
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), wire.DrainTimeout)
	defer cancel()
	err = errors.Join(err, stop(limited))
	<-served // it reports only that the server was stopped
	return errors.Join(err, ignoreClosed(socket.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// stopper returns the function that ends the requests of a server in order.
func stopper(server Server) (func(context.Context) error, error) {
	switch s := server.(type) {
	case interface{ Shutdown(context.Context) error }:
		return func(ctx context.Context) error {
			err := s.Shutdown(ctx)
			if c, ok := server.(io.Closer); ok && err != nil {
				err = errors.Join(err, c.Close()) // what outlives its time is cut off
			}
			return err
		}, nil
	case interface {
		GracefulStop()
		Stop()
	}:
		return func(ctx context.Context) error {
			defer context.AfterFunc(ctx, s.Stop)()
			s.GracefulStop()
			return ctx.Err()
		}, nil
	}
	return nil, fmt.Errorf("a server of type %T cannot be stopped in order: give one with Shutdown, or with GracefulStop and Stop", server)
}

// checkSecured refuses services that no relay would use, and slots to which nothing would hold a
// service: relays send more to one that is Secured, because it refuses them.
func (a *Advertiser) checkSecured(services []Service) error {
	_, web := a.server.(*http.Server)
	for _, s := range services {
		if s.Secured && s.Slots > 0 && !web {
			return fmt.Errorf("service %q: with an Identity only an http.Server is held to its Slots, and this is a %T: serve it by the Handler of an http.Server, or leave Slots empty and answer RESOURCE_EXHAUSTED above a limit of the program", s.Name, a.server)
		}
		if s.Secured != (a.cfg.Identity != nil) {
			return fmt.Errorf("service %q: Secured is %v, but Serve listens with mutual TLS exactly if there is an Identity", s.Name, s.Secured)
		}
	}
	return nil
}

// admit puts mutual TLS around the socket: only relays and observers may connect to workers.
func (a *Advertiser) admit(socket net.Listener, source *identity.Source) *handshake.Listener {
	metric.StartAtZero(a.refused, handshake.ListenerReasons()...)
	return handshake.NewListener(handshake.ListenerConfig{
		Socket: socket, Source: source, TLS: source.ServerConfig(source.Policy(identity.DataPlane), "h2", "http/1.1"),
		Allowed: "relays and observers of this cluster and environment", Refused: a.refused, Logger: a.cfg.Logger,
	})
}

// untilKey is the key of the time from which on a connection ends with its next answer.
type untilKey struct{}

// endInOrder gives each connection of web that time.
func endInOrder(web *http.Server, until func(net.Conn) time.Time) {
	own := web.ConnContext
	web.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if own != nil {
			ctx = own(ctx, nc)
		}
		return context.WithValue(ctx, untilKey{}, until(nc))
	}
}

// loadHandler counts the requests in flight at an http.Server. It reports the others to relays with
// each answer, and holds services to their slots where relays rely on that: with an Identity.
type loadHandler struct {
	next     http.Handler
	slots    func(service string) *slots // nil without slots
	inFlight atomic.Int64
}

// slots is a service with a limit. Its count outlives a change of the limit.
type slots struct {
	limit    atomic.Int64
	inFlight atomic.Int64
}

func (a *loadHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.inFlight.Add(1)
	defer a.inFlight.Add(-1)
	if until, ok := r.Context().Value(untilKey{}).(time.Time); ok && !until.IsZero() && time.Now().After(until) {
		w.Header().Set("Connection", "close") // over HTTP/2 net/http sends GOAWAY, and the streams go on
	}
	service := r.Header.Get(wire.ServiceHeader)
	if s := a.slots(service); s != nil {
		n, limit := s.inFlight.Add(1), s.limit.Load()
		if limit > 0 && n > limit {
			s.inFlight.Add(-1)
			control := http.NewResponseController(w) // the answer waits for no upload
			_ = errors.Join(control.EnableFullDuplex(), control.SetReadDeadline(time.Now().Add(time.Second)))
			wire.RefuseFull(w, r, wire.Failure{Service: service}, limit)
			return
		}
		defer s.inFlight.Add(-1)
	}
	reporting := &loadWriter{ResponseWriter: w, inFlight: &a.inFlight}
	a.next.ServeHTTP(reporting, r)
	reporting.begin(http.StatusOK) // an answer without a byte
}

// loadWriter adds to an answer how many other requests are in flight when it begins. A 503 gets
// that only with Retry-After: with a load relays take it for a sign of overload, and a server that
// fails would never be evicted.
type loadWriter struct {
	http.ResponseWriter
	inFlight *atomic.Int64
	begun    bool
}

func (w *loadWriter) begin(status int) {
	informational := status < 200 && status != http.StatusSwitchingProtocols
	if w.begun || informational {
		return
	}
	w.begun = true
	h := w.Header()
	if _, own := h[wire.LoadHeader]; own || status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		return
	}
	h[wire.LoadHeader] = []string{strconv.FormatInt(max(w.inFlight.Load()-1, 0), 10)}
}

// WriteHeader implements [http.ResponseWriter].
func (w *loadWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *loadWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements [io.ReaderFrom], by which a server sends files without a copy.
func (w *loadWriter) ReadFrom(from io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, from)
}

// Flush implements [http.Flusher].
func (w *loadWriter) Flush() { _ = w.FlushError() } // the next write fails as well

// FlushError is Flush for [http.ResponseController].
func (w *loadWriter) FlushError() error {
	w.begin(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements [http.Hijacker]. It fails over HTTP/2.
func (w *loadWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.begun = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for [http.ResponseController].
func (w *loadWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
