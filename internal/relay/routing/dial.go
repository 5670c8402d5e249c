package routing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// errNoCertificate is why a secured endpoint is of no use to this relay.
var errNoCertificate = errors.New("the endpoint wants mutual TLS and this relay has no certificate: give it one, it never sends clear text there")

// dial returns how to connect to a relay or a worker's sidecar over mutual TLS:
// the other end must be the one that was meant. It is nil, for a plain
// connection, for services and for relays when there are no certificates.
func (c Config) dial(key poolKey) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	switch {
	case key.role == "":
		return nil, nil
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
		conn := tls.Client(plain, c.Identity.ClientConfig(c.Identity.Policy(identity.DataPlane), expected, protocol))
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS with %s %s: %w", key.role, key.node, err), plain.Close())
		}
		return conn, nil
	}, nil
}
