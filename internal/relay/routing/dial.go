package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// errNoCertificate is why a secured endpoint is of no use to this relay.
var errNoCertificate = errors.New("the endpoint wants mutual TLS and this relay has no certificate: give it one, it never sends clear text there")

// errUnsecured is why an endpoint without a sidecar is of no use to a relay that has
// a certificate.
var errUnsecured = errors.New("the endpoint does not speak mutual TLS and this relay has a certificate: give its worker one, or name the service with --allow-clear-text")

// registerActivity shows what the pools of all workers and relays do to have
// connections.
func registerActivity(a *upstream.Activity, r prometheus.Registerer) {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_relay_upstream_waiting", Help: "Requests that wait for an HTTP/1.1 connection to a worker or relay, because all are in use and at most four to one endpoint are opened at a time.",
	}, func() float64 { return float64(a.Waiting.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_relay_upstream_dialling", Help: "HTTP/1.1 connections to workers and relays that are being opened.",
	}, func() float64 { return float64(a.Dialling.Load()) })
	const waits, dials = "ringway_relay_upstream_waits_total", "ringway_relay_upstream_dials_total"
	for i, end := range upstream.WaitEnds() {
		f.NewCounterFunc(prometheus.CounterOpts{
			Name: waits, Help: "Waits for an HTTP/1.1 connection to a worker or relay, by what ended them: opened (a new connection), freed (one that another request needed no longer), failed (none could be opened), gave_up (the request was cancelled or ran out of time), ended (the endpoint was declared dead).",
			ConstLabels: prometheus.Labels{"result": end},
		}, func() float64 { return float64(a.Waits[i].Load()) })
	}
	for result, n := range map[string]*atomic.Uint64{"opened": &a.Opened, "failed": &a.Failed} {
		f.NewCounterFunc(prometheus.CounterOpts{
			Name: dials, Help: "Connections to workers and relays, TLS included, that were opened or failed. Those that were given up count as neither.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(n.Load()) })
	}
}

// dial returns how to connect to a relay or a worker's sidecar over mutual TLS:
// the other end must be the one that was meant. A service is reached in clear text,
// and never on a listener of this relay. It is nil, for a plain connection, for relays
// when there are no certificates.
func (c Config) dial(key poolKey, own ownListeners) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	switch {
	case key.role == "":
		return own.dial, nil
	case c.Identity == nil && key.role == identity.RoleWorker:
		return nil, errNoCertificate
	case c.Identity == nil:
		return nil, nil
	}
	protocol := "http/1.1"
	if key.protocol == upstream.H2C {
		protocol = "h2"
	}
	expected := identity.Expected{Node: key.node, Role: key.role, Addr: key.address}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		plain, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := c.Identity.Client(plain, c.Identity.ClientConfig(c.Identity.Policy(identity.DataPlane), expected, protocol))
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS with %s %s: %w", key.role, key.node, err), conn.Close())
		}
		return conn, nil
	}, nil
}
