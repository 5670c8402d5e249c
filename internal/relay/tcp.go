package relay

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/proxy/tcp"
	"github.com/ringway/ringway/internal/relay/proxyprotocol"
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
	sockets   ingressSockets
	listeners []*listener
}

// serveTCP makes the servers of the bound addresses.
func (r *Relay) serveTCP() {
	refused := tcp.NewRefused(r.cfg.Registry)
	for i, l := range r.cfg.TCP {
		r.tcp.listeners = append(r.tcp.listeners, &listener{
			name: l.name(), socket: r.tcp.sockets[i].accepts,
			server: tcp.New(tcp.Config{
				Service: l.Service, Handler: &r.ingressFront, HelloTimeout: r.cfg.Clients.HeadTimeout,
				Prologue: func(nc net.Conn) (reason string, err error) {
					if err = r.readClient(clientOf(nc)); errors.Is(err, proxyprotocol.ErrMalformed) {
						return tcp.ProxyMalformed, err
					}
					return tcp.ProxyMissing, err // also one that did not come in time
				},
				Began:   func(conn net.Conn) { conn.(*clientConn).since.Store(busy) },
				Refused: refused, Logger: r.cfg.Logger,
			}),
		})
	}
}

// clientSockets returns the addresses to which clients connect: those of the ingress and of
// TCP sessions.
func (r *Relay) clientSockets() ingressSockets { return slices.Concat(r.sockets, r.tcp.sockets) }

// TCPAddrs returns the addresses of Config.TCP, in that order.
func (r *Relay) TCPAddrs() (addrs []string) {
	for _, socket := range r.tcp.sockets {
		addrs = append(addrs, socket.Addr().String())
	}
	return addrs
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

// freeTCP returns the listeners on free ports of loopback, for Check.
func freeTCP(listeners []TCPListener) []TCPListener {
	free := make([]TCPListener, len(listeners))
	for i, l := range listeners {
		free[i] = TCPListener{Addr: node.FreeAddr, Service: l.Service}
	}
	return free
}
