package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/proxy/socket"
	attachment "github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/internal/sharedkey"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// KeeperConfig describes the keeper of a relay.
type KeeperConfig struct {
	Node *membership.Node
	// Value and File are the key that an operator set, if any.
	Value sharedkey.Secret
	File  string
	// Insecure allows the key to travel in clear text if the node has neither a certificate nor
	// a gossip key.
	Insecure   bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Dial opens a connection.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// DialOver returns a function that connects over the network of a member, nil for that of the
// operating system.
func DialOver(n membership.Network) Dial {
	if n == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dial(ctx, address) }
}

// NewKeeper makes the keeper of the key that all relays sign session cookies with. It asks
// and answers on the peer listener; see WithSharedKey.
func NewKeeper(cfg KeeperConfig) (*sharedkey.Keeper, error) {
	m := cfg.Node.Config()
	c := sharedkey.DefaultConfig()
	c.ID, c.Epoch, c.Role, c.Label = m.ID, cfg.Node.Epoch(), m.Role, m.Cluster+"/"+m.Environment
	c.Members, c.Joined = cfg.Node, func() bool { return cfg.Node.Status().Joined }
	c.Value, c.File = cfg.Value, cfg.File
	c.Dial, c.Logger, c.Registerer = DialOver(m.Network), cfg.Logger, cfg.Registerer
	switch {
	case m.Identity != nil:
		c.Authorize = func(req *http.Request) error { return AuthorizePeer(m.Identity, req) }
		c.Client = func(to membership.Member) *http.Client { return PeerClient(m.Identity, to, c.Dial) }
	case m.Keyring != nil:
		c.Seal = func() (keys []sharedkey.Secret) {
			for _, key := range m.Keyring.Keys() {
				keys = append(keys, key)
			}
			return keys
		}
	default:
		c.Insecure = cfg.Insecure
	}
	return sharedkey.New(c)
}

// AuthorizePeer admits relays and gates by the certificate that the listener has verified.
func AuthorizePeer(source *identity.Source, req *http.Request) error {
	claims, err := source.PeerClaims(*req.TLS)
	if err != nil {
		return err
	}
	policy := source.Policy(identity.DataPlane)
	policy.Only = []identity.Role{identity.RoleRelay, identity.RoleGate}
	return policy.Check(claims)
}

// PeerClient returns a client that connects only to this relay. It keeps no connection,
// because relays are asked rarely. dial opens the connection; nil means TCP.
func PeerClient(source *identity.Source, to membership.Member, dial Dial) *http.Client {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	expected := identity.Expected{Node: to.ID, Role: to.Role, Addr: to.ForwardAddr}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			plain, err := dial(ctx, network, addr)
			if err != nil {
				return nil, fmt.Errorf("TLS with %s: %w", to.ID, err)
			}
			conn := source.Client(plain, source.ClientConfig(source.Policy(identity.DataPlane), expected, "http/1.1"))
			if err := conn.HandshakeContext(ctx); err != nil {
				return nil, errors.Join(fmt.Errorf("TLS with %s: %w", to.ID, err), conn.Close())
			}
			return conn, nil
		},
	}}
}

// WithSharedKey answers questions for the key. Everything else on the peer listener is a
// forwarded request, which always names the relay that forwarded it.
func WithSharedKey(keeper *sharedkey.Keeper, forwarded http.Handler) http.Handler {
	key := keeper.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == sharedkey.Path && req.Header.Get(wire.HopHeader) == "" {
			key.ServeHTTP(w, req)
			return
		}
		forwarded.ServeHTTP(w, req)
	})
}

// AdmitPeers returns a listener that requires mutual TLS: only relays and gates of this
// cluster can connect, and no longer than their certificate is valid. With Divert, which takes
// sessions, its workers can connect where they offer the protocol of sessions. It sets TLS and
// Allowed of the configuration; Refused is the counter of NewRefusedPeers.
func AdmitPeers(cfg handshake.ListenerConfig) *handshake.Listener {
	policy := cfg.Source.Policy(identity.DataPlane)
	policy.Only = []identity.Role{identity.RoleRelay, identity.RoleGate}
	cfg.TLS, cfg.Allowed = cfg.Source.ServerConfig(policy, "h2", "http/1.1"), "relays and gates of this cluster and environment, and its workers for sessions,"
	if cfg.Divert != nil { // else their connections would be those of requests
		workers := cfg.Source.Policy(identity.DataPlane)
		workers.Only = []identity.Role{identity.RoleWorker}
		peers, sessions := cfg.TLS.GetConfigForClient, cfg.Source.ServerConfig(workers, attachment.Protocol).GetConfigForClient
		cfg.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Contains(hello.SupportedProtos, attachment.Protocol) {
				return sessions(hello)
			}
			return peers(hello)
		}
	}
	cfg.Socket = socket.Listen(cfg.Socket)
	return handshake.NewListener(cfg)
}

// NewRefusedPeers registers the counter of the connections that a listener of AdmitPeers refuses.
func NewRefusedPeers(reg prometheus.Registerer) *prometheus.CounterVec {
	refused := metric.With(reg).CounterVec("ringway_relay_peers_refused_total", "Connections refused by the peer listener of a relay with a certificate, by reason: that of the certificate, handshake (no or broken TLS), timeout, too_many or too_many_from_source (newer ones needed the place), or too_fast_from_source (its address begins more TLS handshakes per second than one address may).", "reason")
	metric.StartAtZero(refused, handshake.ListenerReasons()...)
	return refused
}
