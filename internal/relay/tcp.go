package relay

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/proxy/tcp"
)

// TCPListener is an address at which clients open TCP sessions.
type TCPListener struct {
	// Addr is bound by New; port 0 takes a free one.
	Addr string
	// Service is the service of all connections. If it is empty, the server name of each
	// client's TLS handshake names the service, and the handshake passes through.
	Service string
}

// name is the value of the label listener in metrics.
func (l TCPListener) name() string {
	if l.Service == "" {
		return "tls-passthrough"
	}
	return "tcp"
}

// tcpListeners are the listeners of Config.TCP. Like the ingress they open when the relay
// is ready for the first time, and their connections count as those of clients.
type tcpListeners struct {
	listeners []*listener
	sockets   []*lateListener
}

// bind binds the addresses. After an error it has closed those that it had bound.
func (t *tcpListeners) bind(addresses []TCPListener) error {
	for _, l := range addresses {
		socket, err := listenLate(l.Addr)
		if err != nil {
			return errors.Join(fmt.Errorf("listen for %s on %s: %w", l.name(), l.Addr, err), t.Close())
		}
		t.sockets = append(t.sockets, socket)
	}
	return nil
}

// serveTCP makes the servers of the bound addresses.
func (r *Relay) serveTCP(conns *connMetrics) {
	refused := tcp.NewRefused(r.cfg.Registry)
	for i, l := range r.cfg.TCP {
		r.tcp.listeners = append(r.tcp.listeners, &listener{
			name: l.name(), socket: sharedListener{conns.counting(l.name(), r.tcp.sockets[i]), r.clients},
			server: tcp.New(tcp.Config{
				Service: l.Service, Handler: &r.ingressFront, HelloTimeout: r.cfg.Clients.HeadTimeout,
				Began:   func(conn net.Conn) { conn.(*clientConn).since.Store(busy) },
				Refused: refused, Logger: r.cfg.Logger,
			}),
		})
	}
}

// TCPAddrs returns the addresses of Config.TCP, in that order.
func (r *Relay) TCPAddrs() (addrs []string) {
	for _, socket := range r.tcp.sockets {
		addrs = append(addrs, socket.Addr().String())
	}
	return addrs
}

// open lets connections in.
func (t *tcpListeners) open() error {
	for _, socket := range t.sockets {
		if err := socket.open(); err != nil {
			return err
		}
	}
	return nil
}

// listeners returns all listeners of the relay.
func (r *Relay) listeners() []*listener {
	return append([]*listener{r.ingress, r.peer, r.admin}, r.tcp.listeners...)
}

// shutdown ends the intake.
func (t *tcpListeners) shutdown(ctx context.Context) error {
	var errs []error
	for _, l := range t.listeners {
		errs = append(errs, l.server.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// refuse makes the kernel ignore new connections; see lateListener.refuse.
func (t *tcpListeners) refuse() {
	for _, socket := range t.sockets {
		socket.refuse()
	}
}

// pending reports whether a connection waits to be accepted.
func (t *tcpListeners) pending() bool {
	for _, socket := range t.sockets {
		if socket.pending() {
			return true
		}
	}
	return false
}

// Close releases the addresses. It may be called again.
func (t *tcpListeners) Close() error {
	var errs []error
	for _, socket := range t.sockets {
		errs = append(errs, socket.Close())
	}
	return errors.Join(errs...)
}

// sharedListener accepts connections of clients at another address than that of the
// ingress. They share its places.
type sharedListener struct {
	net.Listener
	of *clientListener
}

// Accept returns the next connection as soon as there is a place for it.
func (l sharedListener) Accept() (net.Conn, error) { return l.of.accept(l.Listener) }

// freeTCP returns the listeners on free ports of loopback, for Check.
func freeTCP(listeners []TCPListener) []TCPListener {
	free := make([]TCPListener, len(listeners))
	for i, l := range listeners {
		free[i] = TCPListener{Addr: node.FreeAddr, Service: l.Service}
	}
	return free
}
