package ringwaygrpc

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership/identity"
)

// endpointKey is the key of the endpoint in the attributes of an address.
type endpointKey struct{}

// transport connects in clear text without a certificate, and with one over mutual TLS, at which
// the worker proves its node id.
type transport struct {
	credentials.TransportCredentials // for clear text
	source                           *identity.Source
}

func newCredentials(source *identity.Source) credentials.TransportCredentials {
	return &transport{insecure.NewCredentials(), source}
}

// ClientHandshake implements credentials.TransportCredentials.
func (t *transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	e, ok := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(endpointKey{}).(*advertise.Endpoint)
	switch {
	case !ok:
		return nil, nil, errOtherResolver
	case e.Secured && t.source == nil:
		return nil, nil, fmt.Errorf("ringwaygrpc: worker %s requires mutual TLS: give Config.Identity", e.NodeID)
	case !e.Secured && t.source != nil:
		return nil, nil, fmt.Errorf("ringwaygrpc: worker %s has no mutual TLS, and a client with a certificate sends nothing in clear text: offer the service through its sidecar, or with advertise.Serve and an Identity", e.NodeID)
	case e.Secured:
		return t.prove(ctx, conn, e)
	case e.Protocol == advertise.H2:
		return nil, nil, fmt.Errorf("ringwaygrpc: worker %s offers h2, TLS of its own: give grpc.WithTransportCredentials with the authority of its certificate", e.NodeID)
	}
	return t.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// prove does the handshake of a relay with a worker.
func (t *transport) prove(ctx context.Context, plain net.Conn, e *advertise.Endpoint) (net.Conn, credentials.AuthInfo, error) {
	expected := identity.Expected{Node: e.NodeID, Role: identity.RoleWorker, Addr: e.Address}
	conn := t.source.Client(plain, t.source.ClientConfig(t.source.Policy(identity.DataPlane), expected, "h2"))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("TLS with worker %s: %w", e.NodeID, err), conn.Close())
	}
	return conn, credentials.TLSInfo{State: conn.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// Info implements credentials.TransportCredentials.
func (t *transport) Info() credentials.ProtocolInfo {
	if t.source != nil {
		return credentials.ProtocolInfo{SecurityProtocol: "tls"}
	}
	return t.TransportCredentials.Info()
}

// Clone implements credentials.TransportCredentials.
func (t *transport) Clone() credentials.TransportCredentials { return newCredentials(t.source) }
