package relay

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/tcp"
	"github.com/ringway/ringway/internal/relay/proxyprotocol"
	"github.com/ringway/ringway/internal/settings"
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

// setting is the setting that gives the address.
func (l TCPListener) setting() string {
	if l.Service == "" {
		return "tls-passthrough"
	}
	return "tcp-ingress"
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
					} else if errors.Is(err, errClientShare) {
						return tcp.ClientShare, err
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
		free[i] = TCPListener{Addr: process.FreeAddr, Service: l.Service}
	}
	return free
}

// tcpSettings are the addresses at which clients open TCP sessions.
type tcpSettings struct {
	Ingress, Passthrough settings.List[[]tcpItem] // --tcp-ingress, --tls-passthrough
}

// tcpItem is a listener, with the text that describes it.
type tcpItem struct {
	TCPListener
	setting, text string
}

func newTCPSettings() tcpSettings {
	return tcpSettings{settings.NewList(parseTCPIngress), settings.NewList(parsePassthrough)}
}

const (
	tcpAddressForms = "a port such as 6379, or an address such as 10.0.0.1:6379, [::1]:6379 or :6379"
	tcpIngressForms = "SERVICE after " + tcpAddressForms + ", with '=' between"
)

func (t *tcpSettings) declare(set *settings.Set) {
	const network = "Network"
	settings.Parsed(set, &t.Ingress, settings.Spec{Name: "tcp-ingress", Group: network, Placeholder: "[ADDR:]PORT=SERVICE",
		Usage: "address at which each connection of a client becomes a TCP session with a worker of the service, which must advertise protocol=tcp; a port alone is one of 127.0.0.1, :PORT is all addresses; may be repeated"})
	settings.Parsed(set, &t.Passthrough, settings.Spec{Name: "tls-passthrough", Group: network, Placeholder: "[ADDR:]PORT",
		Usage: "address at which each TLS connection of a client becomes a TCP session, with the service that its server name (SNI) names by --domain and the hosts of routes; nothing is decrypted; may be repeated"})
	set.Check(t.conflicts)
}

// parseTCPIngress parses --tcp-ingress.
func parseTCPIngress(items []string) (listeners []tcpItem, problems []settings.Problem) {
	for _, text := range items {
		address, service, found := strings.Cut(strings.TrimSpace(text), "=")
		if !found || affinity.ValidateService(service) != nil {
			problems = append(problems, settings.Problem{Setting: "tcp-ingress", Value: text, Reason: "no name of a service after a '='", Allowed: tcpIngressForms})
		} else if l, ok := parseTCPAddress(address, service); !ok {
			problems = append(problems, settings.Problem{Setting: "tcp-ingress", Value: text, Reason: notTCPAddress, Allowed: tcpIngressForms})
		} else {
			listeners = append(listeners, tcpItem{l, "tcp-ingress", text})
		}
	}
	return listeners, problems
}

// parsePassthrough parses --tls-passthrough.
func parsePassthrough(items []string) (listeners []tcpItem, problems []settings.Problem) {
	for _, text := range items {
		if l, ok := parseTCPAddress(strings.TrimSpace(text), ""); !ok {
			problems = append(problems, settings.Problem{Setting: "tls-passthrough", Value: text, Reason: notTCPAddress, Allowed: tcpAddressForms})
		} else {
			listeners = append(listeners, tcpItem{l, "tls-passthrough", text})
		}
	}
	return listeners, problems
}

const notTCPAddress = "not an address with a port"

// parseTCPAddress parses an address or, for loopback, a port.
func parseTCPAddress(address, service string) (l TCPListener, ok bool) {
	l = TCPListener{Addr: address, Service: service}
	if _, err := strconv.ParseUint(address, 10, 16); err == nil {
		l.Addr = net.JoinHostPort("127.0.0.1", address)
	}
	parsed, err := settings.ParseAddress(l.Addr)
	l.Addr = parsed
	return l, l.Addr != "" && err == nil
}

// conflicts refuses listeners of which only one can be bound.
func (t *tcpSettings) conflicts() (problems []settings.Problem) {
	var distinct []tcpItem
next:
	for _, l := range slices.Concat(t.Ingress.Value, t.Passthrough.Value) {
		for _, other := range distinct {
			if process.Collide(l.Addr, other.Addr) {
				problems = append(problems, settings.Problem{Setting: l.setting, Value: l.text, Reason: "a second listener at this address: only one of it and " + other.Addr + " can be bound", Allowed: "an address of its own for each listener"})
				continue next
			}
		}
		distinct = append(distinct, l)
	}
	return problems
}

// problems returns all problems of both lists.
func (t *tcpSettings) problems() []settings.Problem {
	return slices.Concat(t.Ingress.Problems(), t.Passthrough.Problems(), t.conflicts())
}

// listeners returns the addresses with their services.
func (t *tcpSettings) listeners() (listeners []TCPListener) {
	for _, l := range slices.Concat(t.Ingress.Value, t.Passthrough.Value) {
		listeners = append(listeners, l.TCPListener)
	}
	return listeners
}

// checkSessions refuses addresses at which every session would be refused.
func checkSessions(listeners []TCPListener, requests Requests) (problems []settings.Problem) {
	for _, l := range listeners {
		if l.Service != "" && !requests.ForClients(l.Service) {
			problems = append(problems, settings.Problem{Setting: "tcp-ingress", Related: []string{"ingress-service"}, Value: l.Service,
				Reason: "clients of this relay may not reach this service", Allowed: "the services of --ingress-service"})
		}
		if l.Service == "" && requests.Domain == "" && len(requests.Routes) == 0 {
			problems = append(problems, settings.Problem{Setting: "tls-passthrough", Related: []string{"domain", "routes"}, Value: l.Addr,
				Reason: "no server name names a service", Allowed: "such an address with a --domain, or with routes that have hosts"})
		}
	}
	return problems
}
