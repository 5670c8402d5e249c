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

// dialRelay returns how to connect to another relay over mutual TLS: it must be
// a relay, and the one that was meant. It is nil, for a plain connection, without
// certificates and for workers, which are reached at the service itself.
func (c Config) dialRelay(key poolKey) func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Identity == nil || key.relay == "" {
		return nil
	}
	protocol := "http/1.1"
	if key.protocol == upstream.H2C {
		protocol = "h2"
	}
	expected := identity.Expected{Node: key.relay, Role: identity.RoleRelay, Addr: key.address}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		plain, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(plain, c.Identity.ClientConfig(c.Identity.Policy(identity.DataPlane), expected, protocol))
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS with relay %s: %w", key.relay, err), plain.Close())
		}
		return conn, nil
	}
}
