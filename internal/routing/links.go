package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// links holds the connections to workers. The table decides which to open and close; links
// does it. Only the router's goroutine calls it. A separate goroutine opens each
// connection and sends its result to ended.
type links struct {
	table  *peering.Table[poolKey]
	pools  *pools
	held   map[poolKey]*upstream.Pool
	nodes  map[poolKey][]string // that the held pools reach or have reached, of those that are members
	ended  chan opening
	wg     sync.WaitGroup
	logger *slog.Logger
	lines  *loglimit.Limiter

	byState *prometheus.GaugeVec
	events  *prometheus.CounterVec
	counted peering.Counts
}

// poolKey identifies connections. Services that share a worker's address share its
// connections.
type poolKey struct {
	address  string
	protocol advertise.Protocol
	// node and role are the identity that the other end must prove over mutual TLS; empty
	// for a service without a sidecar, which proves none.
	node string
	role identity.Role
	// serverName is what the certificate of a service with H2 must be for; empty for the host
	// of its address.
	serverName string
}

// relayKey and sidecarKey return the keys of peers that prove their identity.
func relayKey(address string, protocol advertise.Protocol, node string) poolKey {
	return poolKey{address: address, protocol: protocol, node: node, role: identity.RoleRelay}
}

func sidecarKey(address string, protocol advertise.Protocol, node string) poolKey {
	return poolKey{address: address, protocol: protocol, node: node, role: identity.RoleWorker}
}

// forUpgrades returns the key of the same peer over HTTP/1.1.
func (k poolKey) forUpgrades() poolKey {
	k.protocol = advertise.HTTP1
	return k
}

// opening is the result of one attempt to connect. The pool distinguishes attempts of one
// key that was given up and wanted again.
type opening struct {
	key  poolKey
	pool *upstream.Pool
	err  error
}

func newLinks(owner *pools, lines *loglimit.Limiter, cfg Config) (*links, error) {
	table, err := peering.NewTable[poolKey](peering.Config{DrainDelay: cfg.Links.DrainDelay})
	if err != nil {
		return nil, err
	}
	f := metric.With(cfg.Registerer)
	return &links{
		table: table, pools: owner, held: map[poolKey]*upstream.Pool{}, nodes: map[poolKey][]string{}, ended: make(chan opening), logger: cfg.Logger, lines: lines,
		byState: f.GaugeVec("ringway_peering_links", "Workers that this relay connects to, by state: waiting, opening, open, spare (out of range but within slack), draining.", "state"),
		events:  f.CounterVec("ringway_peering_events_total", "What happened to connections: opened, failed, lost, closed, drain_started, drain_cancelled, and what audits repaired: missing, surplus.", "event"),
	}, nil
}

// pool returns the pool for key, which reaches a node. The caller must then want the key, otherwise
// the next audit closes the pool.
func (l *links) pool(key poolKey, node string) (*upstream.Pool, error) {
	if l.held[key] == nil {
		p, err := l.pools.hold(key)
		if err != nil {
			return nil, err
		}
		l.held[key] = p
	}
	if !slices.Contains(l.nodes[key], node) {
		l.nodes[key] = append(l.nodes[key], node)
	}
	return l.held[key], nil
}

func (l *links) release(key poolKey) {
	delete(l.held, key)
	delete(l.nodes, key)
	l.pools.release(key)
}

// act does what is due and returns when something is due next, zero if nothing is.
func (l *links) act(ctx context.Context, now time.Time) time.Time {
	actions := l.table.Step(now)
	for _, key := range actions.Close {
		l.release(key)
	}
	for _, key := range actions.Open {
		pool := l.held[key]
		l.wg.Go(func() {
			err := pool.Warm(ctx)
			select {
			case l.ended <- opening{key, pool, err}:
			case <-ctx.Done():
			}
		})
	}
	l.countEvents()
	return actions.Next
}

// finish processes the result of an attempt to connect.
func (l *links) finish(o opening, now time.Time) {
	switch {
	case l.held[o.key] != o.pool:
	case o.err != nil:
		if errors.Is(o.err, upstream.ErrUntrusted) || errors.Is(o.err, upstream.ErrNotH2) { // only a person can correct it
			l.lines.Log(slog.LevelWarn, "cannot use a service over TLS; trying again later", "addr", o.key.address, "err", o.err)
		} else {
			l.logger.Debug("cannot connect; trying again later", "addr", o.key.address, "err", o.err)
		}
		l.table.Failed(o.key, now)
	default:
		l.table.Opened(o.key, now)
	}
}

// audit compares the table with the existing connections: a tunnel may have taken the last
// one, or the other end may have closed it.
func (l *links) audit(now time.Time) {
	open := make(map[poolKey]struct{}, len(l.held))
	for key, pool := range l.held {
		if l.table.State(key) == peering.None || pool.Stats().Open > 0 {
			open[key] = struct{}{}
		}
	}
	_, surplus := l.table.Audit(open, now)
	for _, key := range surplus {
		l.release(key)
	}
}

// count updates the states in the metrics. It reads every link, so it must not be called
// for every event.
func (l *links) count() {
	byState := l.table.Count()
	for _, state := range []peering.State{peering.Waiting, peering.Opening, peering.Open, peering.Spare, peering.Draining} {
		l.byState.WithLabelValues(state.String()).Set(float64(byState[state]))
	}
}

// countEvents updates the events in the metrics without reading the links.
func (l *links) countEvents() {
	before, now := l.counted, l.table.Counts()
	l.counted = now
	for _, e := range []struct {
		name   string
		before uint64
		now    uint64
	}{
		{"opened", before.Opened, now.Opened},
		{"failed", before.Failed, now.Failed},
		{"lost", before.Lost, now.Lost},
		{"closed", before.Closed, now.Closed},
		{"drain_started", before.DrainsStarted, now.DrainsStarted},
		{"drain_cancelled", before.DrainsCancelled, now.DrainsCancelled},
		{"missing", before.Missing, now.Missing},
		{"surplus", before.Surplus, now.Surplus},
	} {
		l.events.WithLabelValues(e.name).Add(float64(e.now - e.before))
	}
}

// close closes every connection and waits for the attempts to connect, whose context has
// ended.
func (l *links) close() {
	for key := range l.held {
		l.release(key)
	}
	l.wg.Wait()
	l.count()
	l.countEvents()
}

// errNoCertificate is the error of a secured endpoint if this relay has no certificate.
var errNoCertificate = errors.New("the endpoint wants mutual TLS and this relay has no certificate: give it one, it never sends clear text there")

// errUnsecured is the error of an endpoint without a sidecar if this relay has a
// certificate.
var errUnsecured = errors.New("the endpoint does not speak mutual TLS and this relay has a certificate: give its worker one, or name the service with --allow-clear-text")

// registerActivity registers the metrics of the connections of all pools of workers and
// relays.
func registerActivity(a *upstream.Activity, r prometheus.Registerer) {
	f := metric.With(r)
	f.GaugeFunc("ringway_relay_upstream_waiting", "Requests that wait for an HTTP/1.1 connection to a worker or relay, because all are in use and at most four to one endpoint are opened at a time.",
		func() float64 { return float64(a.Waiting.Load()) })
	f.GaugeFunc("ringway_relay_upstream_dialling", "HTTP/1.1 connections to workers and relays that are being opened.",
		func() float64 { return float64(a.Dialling.Load()) })
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "ringway_relay_upstream_unasked_total", Help: "HTTP/1.1 connections to workers that were closed because bytes had come that belong to no request: a service sends a body where none is allowed (HEAD, 204, 304), or more than the length that it declares.",
	}, func() float64 { return float64(a.Unasked.Load()) })
	for reason, n := range map[string]*atomic.Uint64{"abusive": &a.Abusive, "malformed": &a.Malformed, "stalled": &a.Stalled} {
		f.NewCounterFunc(prometheus.CounterOpts{
			Name: "ringway_relay_upstream_ended_total", Help: "HTTP/2 connections to workers and relays that were closed because the endpoint sent too much that costs and carries nothing (abusive: floods of SETTINGS, PING, WINDOW_UPDATE, CONTINUATION and the like), or what is no HTTP/2 (malformed), or because it accepted no byte for a minute (stalled).",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 { return float64(n.Load()) })
	}
	const waits, dials = "ringway_relay_upstream_waits_total", "ringway_relay_upstream_dials_total"
	for i, end := range upstream.WaitEnds() {
		f.NewCounterFunc(prometheus.CounterOpts{
			Name: waits, Help: "Waits for an HTTP/1.1 connection to a worker or relay, by what ended them: opened (a new connection), freed (one that another request needed no longer), failed (none could be opened), gave_up (the request was cancelled or ran out of time), ended (the endpoint was declared dead).",
			ConstLabels: prometheus.Labels{"result": end},
		}, func() float64 { return float64(a.Waits[i].Load()) })
	}
	for result, n := range map[string]*atomic.Uint64{"opened": &a.Opened, "failed": &a.Failed, "untrusted": &a.Untrusted, "not_h2": &a.NotH2} {
		f.NewCounterFunc(prometheus.CounterOpts{
			Name: dials, Help: "Connections to workers and relays, TLS included, that were opened or failed; untrusted (the certificate of a service with h2 is not the expected one) and not_h2 (such a service does not speak HTTP/2 over TLS) are counted apart from failed. Those that were given up are not counted.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(n.Load()) })
	}
}

// dial returns the function that connects to a relay or a worker's sidecar over mutual TLS
// and verifies the identity of the other end. A service without a sidecar is reached in
// clear text, or by the TLS of its pool, and never on a listener of this relay. For relays without
// certificates the function is Config.Dial, which may be nil.
func (c Config) dial(key poolKey, own ownListeners) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	switch {
	case key.role == "" && c.Dial == nil:
		return own.dial, nil
	case key.role == "":
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			if own.listens(address) {
				return nil, fmt.Errorf("%s: %w", address, errOwnListener)
			}
			return c.Dial(ctx, network, address)
		}, nil
	case c.Identity == nil && key.role == identity.RoleWorker:
		return nil, errNoCertificate
	case c.Identity == nil:
		return c.Dial, nil
	}
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	protocol := "http/1.1"
	if key.protocol == advertise.H2C {
		protocol = "h2"
	}
	expected := identity.Expected{Node: key.node, Role: key.role, Addr: key.address}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := c.Identity.Client(socket.Direct(plain), c.Identity.ClientConfig(c.Identity.Policy(identity.DataPlane), expected, protocol))
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS with %s %s: %w", key.role, key.node, err), conn.Close())
		}
		return conn, nil
	}, nil
}

// errOwnListener is the error of an endpoint that leads back to this relay. Such a request
// could reach the admin API, which trusts connections from this host.
var errOwnListener = errors.New("this relay itself listens there: its worker offers the address of another process")

// errListener is the error of an endpoint that leads to a relay. All relays refuse it, because each
// knows the listener.
var errListener = errors.New("its worker offers the address of another process: it is a listener")

// ownListeners are the listeners of this process, so that no request is sent to them in
// place of a worker.
type ownListeners struct {
	listeners []netip.AddrPort
	hosts     []netip.Addr // the names of this host for other members, in addition to its own addresses
}

func newOwnListeners(listeners, hosts []string) (own ownListeners) {
	for _, address := range listeners {
		if a, err := netip.ParseAddrPort(address); err == nil {
			own.listeners = append(own.listeners, netip.AddrPortFrom(plainAddr(a.Addr()), a.Port()))
		}
	}
	for _, host := range hosts {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			own.hosts = append(own.hosts, plainAddr(ip))
		}
	}
	return own
}

func plainAddr(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// listens reports whether a connection to an address reaches one of the listeners. Another address of
// this host with the same port may be that of a service. A host name is checked after its resolution,
// at the dial.
func (o ownListeners) listens(address string) bool {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	ip := plainAddr(a.Addr())
	return slices.ContainsFunc(o.listeners, func(l netip.AddrPort) bool { return l.Port() == a.Port() && o.reaches(ip, l.Addr()) })
}

// reaches reports whether a connection to an IP address reaches a listener at another one with the same
// port.
func (o ownListeners) reaches(ip, listener netip.Addr) bool {
	switch {
	case ip == listener:
		return true
	case slices.Contains(o.hosts, ip): // it may lead to any address of the host that others can reach
		return !listener.IsLoopback()
	case ip.IsUnspecified(): // the system connects to its loopback address
		return listener.IsLoopback() || listener.IsUnspecified()
	case !listener.IsUnspecified(), ip.Is6() && listener.Is4():
		return false
	}
	return ip.IsLoopback() || ownAddress(ip)
}

// ownAddress reports whether a network interface of this host has the address.
func ownAddress(ip netip.Addr) bool {
	interfaces, err := net.InterfaceAddrs() // asked only if the port matches, which is rare
	return err == nil && slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		host, _, _ := strings.Cut(a.String(), "/")
		own, err := netip.ParseAddr(host)
		return err == nil && plainAddr(own) == ip
	})
}

// dial connects to a service, whose address may be a host name.
func (o ownListeners) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, resolved string, _ syscall.RawConn) error {
		if o.listens(resolved) {
			return fmt.Errorf("%s: %w", resolved, errOwnListener)
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}
