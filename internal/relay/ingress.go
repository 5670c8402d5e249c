package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/tcp"
	"github.com/ringway/ringway/internal/relay/activation"
	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/proxyprotocol"
	"github.com/ringway/ringway/membership/identity"
)

// ingressSocket is one address of the ingress.
type ingressSocket struct {
	*lateListener
	of      ingressAddr     // zero at an address of TCP sessions
	accepts *clientListener // on it
}

// ingressSockets are all addresses of the ingress, which open and close together.
type ingressSockets []ingressSocket

// listenClients binds the addresses of the ingress and of TCP sessions, or takes the sockets
// that were passed for them.
func (r *Relay) listenClients(cfg *Config, conns *connMetrics) error {
	addrs, err := parseIngressAddrs(cfg.IngressAddrs)
	if err != nil {
		return err
	}
	fitting, err := fitPassed(addrs, cfg.TCP, cfg.Passed)
	if err != nil {
		return err
	}
	listen := func(i int, name, setting, addr string, secured bool) (socket ingressSocket, err error) {
		late := passedListener(fitting[i])
		if late == nil {
			if late, err = listenLate(addr); err != nil {
				return socket, fmt.Errorf("listen for %s on %s (--%s): %w", name, addr, setting, err)
			}
		}
		return ingressSocket{lateListener: late, accepts: r.clients.listener(conns.counting(name, late), secured)}, nil
	}
	for i, a := range addrs {
		socket, err := listen(i, "ingress", "ingress-addr", a.addr, a.secured)
		if err != nil {
			return err
		}
		socket.of = a
		r.sockets = append(r.sockets, socket)
	}
	for i, l := range cfg.TCP {
		socket, err := listen(len(addrs)+i, l.name(), l.setting(), l.Addr, false)
		if err != nil {
			return err
		}
		r.tcp.sockets = append(r.tcp.sockets, socket)
	}
	return nil
}

// serveIngress reads the certificates and makes the server of the ingress.
func (r *Relay) serveIngress(cfg *Config, conns *connMetrics) (err error) {
	var addrs []ingressAddr
	var sites []clienttls.Site
	for _, s := range r.sockets {
		addrs = append(addrs, s.of)
		if s.of.secured {
			s.accepts.site = len(sites)
			sites = append(sites, s.of.site(cfg))
		}
	}
	if pairs, authorities := usesCommon(addrs); len(cfg.IngressTLS) > 0 && !pairs || cfg.IngressClientCA != "" && !authorities {
		return errors.New("there are certificates or authorities for the ingress, and no address of it uses them: give it an address with " + tlsScheme + " that has none of its own")
	}
	if len(sites) > 0 {
		if r.certificates, err = clienttls.New(clienttls.Config{Sites: sites, Admit: admitClients(cfg), AdmitChanged: admitChanges(cfg), Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
			return err
		}
	}
	r.ingress.serveClients(cfg, conns, downstream.Config{
		Handler: &r.ingressFront, ConnState: r.clients.record, ConnContext: connContext, IdleTimeout: cfg.Clients.IdleTimeout,
		Until: handshake.UntilRenewal(nil), MaxHead: cfg.Clients.MaxHead, MaxStreams: cfg.Clients.MaxStreams,
		Shared: r.proxied,
		Prologue: func(nc net.Conn) (net.Conn, error) {
			out, err := r.welcome(nc)
			if err != nil && !r.stopping.Load() {
				reason := refusal(err)
				conns.refusedClients.WithLabelValues(reason).Inc()
				if message := certificateRefusals[reason]; message != "" {
					host := addrOf(nc.RemoteAddr()).String()
					r.refusedClients.Gather(slog.LevelWarn, message, host, "client", host, "err", err)
				}
			}
			return out, err
		},
	})
	return nil
}

// admitClients returns the judge of client certificates, which applies the row of clients of the
// connection matrix: to the certificates of the fleet's own authorities, or to all.
func admitClients(cfg *Config) func([]*x509.Certificate) error {
	m := &cfg.Membership
	policy := identity.Policy{
		Self: identity.Claims{Role: m.Role, Cluster: m.Cluster, Environment: m.Environment, Node: m.ID},
		Only: []identity.Role{identity.RoleClient, identity.RoleObserver}, // those that submit requests
	}
	read := identity.FromCertificate
	if m.Identity != nil {
		read = m.Identity.FromCertificate
	}
	return func(presented []*x509.Certificate) error {
		ours := cfg.IngressClientClaims == followYes
		if m.Identity != nil {
			issued, err := m.Identity.Issued(presented)
			if err != nil { // denied, above all
				return err
			}
			ours = ours || issued && cfg.IngressClientClaims != followNo
		}
		if !ours {
			return nil
		}
		claims, err := read(presented[0])
		if err != nil {
			return err
		}
		return policy.Check(claims)
	}
}

// admitChanges returns when the judge of client certificates changes: with the deny list and the
// authorities of the fleet.
func admitChanges(cfg *Config) func() <-chan struct{} {
	if source := cfg.Membership.Identity; source != nil {
		return source.Changed
	}
	return nil
}

// welcome prepares a connection of a client before its first request.
func (r *Relay) welcome(nc net.Conn) (net.Conn, error) {
	c := clientOf(nc)
	if c == nil {
		return nc, nil
	}
	if err := r.readClient(c); err != nil {
		return nil, err
	}
	if !c.of.secured {
		return nc, nil
	}
	if remote := c.RemoteAddr(); !r.fronts(addrOf(remote)) {
		if err := r.handshakes.Wait(context.Background(), remote); err != nil {
			return nil, err
		}
	}
	secured, err := r.certificates.Handshake(nc, c.of.site)
	if err != nil {
		return nil, err // and not a nil *tls.Conn
	}
	return secured, nil
}

// readClient reads the header of the PROXY protocol if the connection comes from a load
// balancer that sends one. From then on the connection has the address of the client.
func (r *Relay) readClient(c *clientConn) error {
	if !fronted(c.Conn.RemoteAddr(), r.tuned.Load().ProxyProtocolFrom) {
		return nil
	}
	client, err := proxyprotocol.Read(c)
	if err != nil || !client.IsValid() {
		return err
	}
	c.remote = net.TCPAddrFromAddrPort(client)
	if addr := addrOf(c.remote); !r.fronts(addr) && !c.of.all.claim(c, addr) {
		return errClientShare
	}
	return nil
}

// errClientShare is why a connection is refused whose client has as many as it may have.
var errClientShare = errors.New("the client has as many connections as one client may have: it should use fewer, or --max-client-connections be raised")

// fronts reports whether many clients may be behind an address: that of this host, of a trusted proxy
// or of a load balancer.
func (r *Relay) fronts(addr netip.Addr) bool {
	inside := func(network netip.Prefix) bool { return network.Contains(addr) }
	tuned := r.tuned.Load()
	return addr.IsLoopback() || slices.ContainsFunc(tuned.TrustedProxies, inside) || slices.ContainsFunc(tuned.ProxyProtocolFrom, inside)
}

// proxied reports whether a connection comes from a trusted proxy, which has requests of many clients on
// it. One from a load balancer, or from this host without such a proxy, may be that of one client.
func (r *Relay) proxied(conn net.Conn) bool {
	addr := addrOf(conn.RemoteAddr())
	return slices.ContainsFunc(r.tuned.Load().TrustedProxies, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// fronted reports whether a connection comes from a load balancer that names the client in
// the PROXY protocol.
func fronted(remote net.Addr, from []netip.Prefix) bool {
	if len(from) == 0 {
		return false
	}
	addr := addrOf(remote)
	return slices.ContainsFunc(from, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// The reasons for which the ingress ends a connection because of the PROXY protocol, or of the client
// that it names.
const (
	refusedMissing   = tcp.ProxyMissing
	refusedMalformed = tcp.ProxyMalformed
	refusedShare     = tcp.ClientShare
	refusedPace      = handshake.ReasonPace
)

// refusals lists the reasons for which the ingress ends a connection before its first
// request.
func refusals() []string {
	return append(clienttls.Reasons(), refusedMissing, refusedMalformed, refusedShare, refusedPace)
}

// certificateRefusals are the lines of the log about clients whose certificate is refused, by
// reason: such a client is mistaken, and not a port scan.
var certificateRefusals = map[string]string{
	clienttls.ReasonAuthority:   "client refused: no authority of --ingress-client-ca issued its certificate",
	clienttls.ReasonExpired:     "client refused: its certificate is not valid now: renew it, or correct a clock",
	clienttls.ReasonUnnamed:     "client refused: its certificate names no client: issue it with a name",
	clienttls.ReasonNotClient:   "client refused: its certificate is not that of a client of this fleet: issue one with the role client",
	clienttls.ReasonCertificate: "client refused: its certificate has a fault",
}

func refusal(err error) string {
	switch {
	case errors.Is(err, proxyprotocol.ErrMissing):
		return refusedMissing
	case errors.Is(err, proxyprotocol.ErrMalformed):
		return refusedMalformed
	case errors.Is(err, errClientShare):
		return refusedShare
	case errors.Is(err, handshake.ErrPace):
		return refusedPace
	}
	return clienttls.Reason(err)
}

// connContext returns the context of the requests of a connection: it names the client that
// has presented a certificate.
func connContext(nc net.Conn) context.Context {
	secured, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	state := secured.ConnectionState()
	name := clienttls.Caller(&state)
	if name == "" {
		return nil
	}
	return ingress.WithCaller(context.Background(), name)
}

// open lets clients in at all addresses.
func (s ingressSockets) open() error {
	for _, one := range s {
		if err := one.lateListener.open(); err != nil {
			return err
		}
	}
	return nil
}

// isOpen reports whether clients can come in.
func (s ingressSockets) isOpen() bool {
	for _, one := range s {
		if !one.lateListener.isOpen() {
			return false
		}
	}
	return true
}

// refuse makes the kernel ignore new connections at all addresses; see lateListener.
func (s ingressSockets) refuse() {
	for _, one := range s {
		one.lateListener.refuse()
	}
}

// pending reports whether a connection waits to be accepted.
func (s ingressSockets) pending() bool {
	for _, one := range s {
		if one.lateListener.pending() {
			return true
		}
	}
	return false
}

// close releases all addresses.
func (s ingressSockets) close() error {
	var errs []error
	for _, one := range s {
		errs = append(errs, one.lateListener.Close())
	}
	return errors.Join(errs...)
}

// passedName is the name of a socket that is meant for the ingress.
const passedName = "ingress"

// fitPassed returns for each address of the ingress, and then of TCP sessions, the socket that
// was passed for it, nil without one. A socket fits the address that it listens at; with the
// name of the ingress, the only socket that is left also fits the only address of the ingress
// that is left. The others are an error.
func fitPassed(ingress []ingressAddr, sessions []TCPListener, sockets []activation.Socket) ([]net.Listener, error) {
	var addrs []string
	for _, a := range ingress {
		addrs = append(addrs, a.addr)
	}
	for _, l := range sessions {
		addrs = append(addrs, l.Addr)
	}
	fitting := make([]net.Listener, len(addrs))
	var left []activation.Socket
	for _, s := range sockets {
		i := slices.IndexFunc(addrs, func(addr string) bool { return sameAddr(addr, s.Addr()) })
		if i < 0 || fitting[i] != nil {
			left = append(left, s)
			continue
		}
		fitting[i] = s.Listener
	}
	if len(left) == 0 {
		return fitting, nil
	}
	free := slices.Index(fitting[:len(ingress)], nil)
	if s := left[0]; len(left) > 1 || s.Name != passedName || free < 0 || slices.Contains(fitting[free+1:len(ingress)], nil) {
		return nil, fmt.Errorf("the socket %q on %s was passed to this process and fits no --ingress-addr, --tcp-ingress or --tls-passthrough: give the relay this address, or remove it from the socket unit", s.Name, s.Addr())
	}
	fitting[free] = left[0].Listener
	return fitting, nil
}

// sameAddr reports whether a socket listens at an address of the settings.
func sameAddr(addr string, socket net.Addr) bool {
	want, err := net.ResolveTCPAddr("tcp", addr)
	got, ok := socket.(*net.TCPAddr)
	if err != nil || !ok || want.Port != got.Port {
		return false
	}
	a, _ := netip.AddrFromSlice(want.IP)
	b, _ := netip.AddrFromSlice(got.IP)
	a, b = a.Unmap(), b.Unmap()
	every := func(ip netip.Addr) bool { return !ip.IsValid() || ip.IsUnspecified() }
	return a == b || every(a) && every(b)
}
