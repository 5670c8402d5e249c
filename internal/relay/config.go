package relay

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/activation"
	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
)

// Config is the configuration of a relay. Settings.Config makes one.
type Config struct {
	// Membership describes this member; New sets its ForwardAddr and AdminAddr.
	Membership membership.Config
	// IngressAddrs, PeerAddr and AdminAddr are bound by New; port 0 takes a free one. Clients
	// begin with TLS at an address of the ingress that has the prefix tls://. What follows it as
	// ;cert=FILE;key=FILE or ;client-ca=FILE replaces IngressTLS or IngressClientCA there.
	IngressAddrs        []string
	PeerAddr, AdminAddr string
	// Passed are listening sockets that the relay uses in place of its own, at the addresses of
	// IngressAddrs and TCP. New takes all of them over; one that fits no address is an error.
	Passed []activation.Socket
	// IngressTLS are the certificates for clients; the first is the default. Required for
	// tls:// without cert and only for that.
	IngressTLS []clienttls.Pair
	// IngressClientCA is the file of the authorities of client certificates. Default: clients
	// present none.
	IngressClientCA string
	// IngressClientClaims is whether a client certificate must have the role client or observer, this
	// cluster and this environment. followAuto, the default, means those that an authority of the
	// fleet has issued.
	IngressClientClaims following

	// TCP are the addresses at which clients open TCP sessions. Default: none.
	TCP []TCPListener

	// Admin configures the access to the admin API.
	Admin process.AdminConfig

	// Plans, PlansFromFleet and Links configure plans and connections; see package routing. A
	// reload replaces Plans and PlansFromFleet.
	Plans          routing.PlanSettings
	PlansFromFleet bool
	Links          routing.LinkConfig
	// Strategies holds the strategies with which endpoints are picked; New sets Stale.
	Strategies routing.StrategiesConfig
	// Selection and Forwarding configure how workers, and relays to forward to, are compared
	// and used, Upstream how connections to both are opened and kept. New sets the fields that
	// routing.Config reserves for the router.
	Selection  selection.Config
	Forwarding relaypool.Config
	Upstream   upstream.Config

	// Rules decide which offers become endpoints. New sets Proven.
	Rules advertise.Rules
	// AllowClearText names services whose endpoints need not be secured although this relay
	// has a certificate.
	AllowClearText []string
	// ServiceTLS is how the certificates of services with h2 are checked.
	ServiceTLS routing.ServiceTLSConfig

	// Clients describes the connections of clients.
	Clients ClientConfig
	// Requests are replaced by a reload.
	Requests Requests
	// ProgressTimeout is the Progress of ingress.Config.
	ProgressTimeout time.Duration
	// Circuit configures the circuits of callers; New sets its Registerer. Default nil: no
	// circuits.
	Circuit *circuit.Config
	// Tracing configures where spans of requests are sent; New sets its other fields.
	// Without an Endpoint there are no spans.
	Tracing tracing.Config

	// RequestLog is the file for the records of requests, requestlog.Stdout for standard
	// output. Default: requests are recorded only for taps.
	RequestLog string
	// Explanations is how many sampled requests are remembered with the choice of their
	// endpoints. Default 0: none.
	Explanations int

	// SharedKey and SharedKeyFile give the key that relays sign session cookies with;
	// without either the relays agree on one by themselves.
	SharedKey, SharedKeyFile string
	// Insecure lets relays send each other the key in clear text.
	Insecure bool

	// ProbeDelay is how long a stopping relay stays up after it became unready, so that load
	// balancers notice. Default 1 s.
	ProbeDelay time.Duration
	// EmptyAfter: see assembly.Config. TrafficMemory: see routing.Config.
	EmptyAfter, TrafficMemory time.Duration

	// PendingPeers limits the connections to the peer listener that have not proven yet whose
	// they are. Zero values mean the defaults.
	PendingPeers handshake.PendingConfig

	// Running holds the settings in effect. A reload reads them again, and Reloaded returns
	// what was read. Nil: no reload.
	Running  *process.Running
	Reloaded func() Reloaded
	// Monitor lets operators read the log; nil disables this.
	Monitor *process.Monitor

	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Reloaded is what a reload replaces.
type Reloaded struct {
	Requests       Requests
	Plans          routing.PlanSettings
	PlansFromFleet bool
}

// Requests are the settings of requests, connections of clients and stops that can change
// while the relay runs. A reload replaces all of them. Settings on which all relays must
// agree, except those of the plan, and those of bound addresses, need a restart.
type Requests struct {
	ingress.Requests
	// MaxClientConnections is how many connections clients may have open at the ingress, so
	// that descriptors are left for all other parts. Default 0: half of the limit of open
	// files after a reserve of 128, because each may need one to a worker.
	MaxClientConnections int
	// ProxyProtocolFrom are the networks of load balancers whose connections to the addresses
	// for clients begin with a header of the PROXY protocol, which names the client. Default: none.
	ProxyProtocolFrom []netip.Prefix
	// DrainTimeout is how long a stop waits for requests in flight.
	DrainTimeout time.Duration
	// SessionDrainTimeout is how long a stop waits for tunnels and begun answers, from the
	// same moment on. Those that are left after DrainTimeout are ended one after the other,
	// spread over the rest of the time. Default 0; any value below DrainTimeout ends all of
	// them at DrainTimeout.
	SessionDrainTimeout time.Duration
}
