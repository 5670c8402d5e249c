package advertise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

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
// http.Server also reports to relays how many requests it has in flight. Of other servers, such as
// a grpc.Server, each relay counts only the requests that it has sent itself.
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
		err = a.checkSecured()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("advertiser %q: %w", a.cfg.ID, err), socket.Close(), a.Close())
	}
	if web, ok := server.(*http.Server); ok {
		web.Handler = reportLoad(web.Handler)
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

// checkSecured refuses services that no relay would use.
func (a *Advertiser) checkSecured() error {
	for _, s := range a.cfg.Services {
		if s.Secured != (a.cfg.Identity != nil) {
			return fmt.Errorf("service %q: Secured is %v, but Serve listens with mutual TLS exactly if there is an Identity", s.Name, s.Secured)
		}
	}
	return nil
}

// admit puts mutual TLS around the socket: only relays and observers may connect to workers.
func (a *Advertiser) admit(socket net.Listener, source *identity.Source) *handshake.Listener {
	refused := metric.With(nil).CounterVec("ringway_advertise_connections_refused_total", "Connections refused by the server of an advertiser with a certificate, by reason, as ringway_sidecar_refused_total.", "reason")
	metric.StartAtZero(refused, handshake.ListenerReasons()...)
	if a.cfg.Registerer != nil {
		if err := a.cfg.Registerer.Register(refused); err != nil {
			a.cfg.Logger.Warn("refused connections are not counted", "err", err)
		}
	}
	return handshake.NewListener(handshake.ListenerConfig{
		Socket: socket, Source: source, TLS: source.ServerConfig(source.Policy(identity.DataPlane), "h2", "http/1.1"),
		Allowed: "relays and observers of this cluster and environment", Refused: refused, Logger: a.cfg.Logger,
	})
}

// reportLoad adds the number of requests in flight to each response. Relays use it, and do not
// pass it on.
func reportLoad(next http.Handler) http.Handler {
	if next == nil {
		next = http.DefaultServeMux
	}
	var inFlight atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		w.Header()[wire.LoadHeader] = []string{strconv.FormatInt(n, 10)}
		next.ServeHTTP(w, r)
	})
}
