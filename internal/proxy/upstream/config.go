package upstream

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/ringway/ringway/advertise"
)

// DefaultConfig returns the defaults of the fields that have a setting.
func DefaultConfig() Config {
	return Config{DialTimeout: time.Second, IdleTimeout: 60 * time.Second, MaxIdle: 1024, MaxResponseHeaderBytes: DefaultMaxResponseHead}
}

const (
	defaultExpectContinueTimeout = time.Second
	defaultMaxConns              = 8
)

// DefaultMaxResponseHead is the default of Config.MaxResponseHeaderBytes, and LeastResponseHead and
// MostResponseHead are the bounds of its settings.
const (
	DefaultMaxResponseHead = 64 << 10
	LeastResponseHead      = 4 << 10
	MostResponseHead       = 1 << 20
)

// Config describes one endpoint and how its connections are kept. The zero value of every
// field except Address means the default.
type Config struct {
	// Address is where the endpoint listens, IP:port or host:port.
	Address string
	// Protocol is HTTP1 (the default), H2C, H2 or TCP.
	Protocol advertise.Protocol
	// TLS is for an endpoint with H2: a service that ends TLS itself. Default: the authorities
	// of this host, and the host of Address.
	TLS ServiceTLS
	// DialTimeout bounds one connection attempt. Default 1 s: an endpoint that cannot be
	// reached in 1 s justifies an attempt at another one. A request that waits while
	// connections for other requests are opened may wait longer, until its own deadline.
	DialTimeout time.Duration
	// IdleTimeout is how long a connection may carry no request. It is closed after half of this
	// time at the earliest and about this time at the latest, so that a service that waits longer
	// does not close it under a request. Default 60 s.
	IdleTimeout time.Duration
	// MaxIdle is how many idle HTTP/1.1 connections are kept. Default 1024: with fewer, a busy
	// relay closes connections that it needs again in a moment.
	MaxIdle int
	// MaxConns is how many HTTP/2 connections are opened; each carries as many streams as the
	// endpoint allows. Default 8. HTTP/1.1 connections have no such limit, because the
	// caller bounds the requests in flight; only the number that is opened at a time is
	// limited (maxDials).
	MaxConns int
	// ExpectContinueTimeout is how long a request with "Expect: 100-continue" waits for the
	// endpoint's 100 before the body is sent anyway. Default 1 s.
	ExpectContinueTimeout time.Duration
	// MaxResponseHeaderBytes bounds a response head, and separately the trailers.
	// Default 64 KiB.
	MaxResponseHeaderBytes int
	// Dial opens a connection; nil means a plain TCP dial. A TLS connection must be returned
	// after its handshake. For H2 the pool itself begins TLS on the connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Activity counts the waits and the dials of all pools that share it. Nil disables the
	// counts.
	Activity *Activity
	// Sessions ends the tunnels and streams of this pool when the process stops. Default
	// nil: only Drain ends them.
	Sessions *Sessions
}

func (c *Config) complete() error {
	if c.Address == "" {
		return fmt.Errorf("upstream: endpoint address is empty: give IP:port or host:port")
	}
	if _, port, err := net.SplitHostPort(c.Address); err != nil || port == "" {
		return fmt.Errorf("upstream: endpoint address %q is not IP:port or host:port", c.Address)
	}
	switch c.Protocol {
	case "":
		c.Protocol = advertise.HTTP1
	case advertise.HTTP1, advertise.H2C, advertise.H2, advertise.TCP:
	default:
		return fmt.Errorf("upstream: endpoint %s: unknown protocol %q: advertise http1, h2c, h2 or tcp", c.Address, c.Protocol)
	}
	standard := DefaultConfig()
	for _, d := range []struct {
		name  string
		value *time.Duration
		dflt  time.Duration
	}{
		{"DialTimeout", &c.DialTimeout, standard.DialTimeout},
		{"IdleTimeout", &c.IdleTimeout, standard.IdleTimeout},
		{"ExpectContinueTimeout", &c.ExpectContinueTimeout, defaultExpectContinueTimeout},
	} {
		if *d.value < 0 {
			return fmt.Errorf("upstream: endpoint %s: %s %v is negative: give 0 for the default or more", c.Address, d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.dflt
		}
	}
	if c.MaxIdle <= 0 {
		c.MaxIdle = standard.MaxIdle
	}
	if c.MaxConns <= 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.MaxResponseHeaderBytes <= 0 {
		c.MaxResponseHeaderBytes = DefaultMaxResponseHead
	}
	if c.Activity == nil {
		c.Activity = new(Activity)
	}
	if c.Dial == nil {
		// The context of Pool.dial applies DialTimeout.
		var d net.Dialer
		c.Dial = d.DialContext
	}
	return nil
}
