package relay

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/circuit"
	"github.com/ringway/ringway/selection/pool"
)

// Config is the configuration of a relay. Settings.Config makes one.
type Config struct {
	// Membership describes this member; its ForwardAddr and AdminAddr are filled
	// in by New.
	Membership membership.Config
	// IngressAddr, PeerAddr and AdminAddr are bound by New; port 0 takes a free one.
	IngressAddr, PeerAddr, AdminAddr string

	// Admin says who may use the admin API.
	Admin daemon.AdminConfig

	// Plans and Links are about who connects to whom; see package routing.
	Plans routing.PlanConfig
	Links routing.LinkConfig
	// Choosing says with which strategies endpoints are picked; Stale is filled in by
	// New.
	Choosing routing.ChoosingConfig
	// Selection and Forwarding say how workers, and relays that requests are forwarded
	// to, are judged and used; Upstream how connections to both are opened and kept. What
	// counts evictions, and what routing.Config calls the router's, is filled in by New.
	Selection  selection.Config
	Forwarding pool.Config
	Upstream   upstream.Config

	// Rules say which offers become endpoints. Proven is filled in by New.
	Rules advertise.Rules
	// AllowClearText names services whose endpoints need not be secured although this
	// relay has a certificate.
	AllowClearText []string

	// See ingress.Config.
	Domain               string
	Routes               []ingress.Route
	Keys                 ingress.Keys
	RequestTimeout       time.Duration
	AttemptTimeout       time.Duration
	ProgressTimeout      time.Duration
	MaxAttempts          int
	RetryBudget          float64
	MaxInFlight          int
	MaxInFlightPerClient int
	AdaptiveInFlight     bool
	TrustedProxies       []netip.Prefix
	ExposeRouteHeaders   bool
	// MaxClientConnections is how many connections clients may have open at the
	// ingress, so that descriptors are left for all else. Default 0: half of what the
	// limit of open files leaves after a reserve of 128, as each may need one to a
	// worker.
	MaxClientConnections int
	// Circuit is how the circuits of callers open and close; its Registerer is filled
	// in by New. Default nil: there are none.
	Circuit *circuit.Config
	// Tracing says where spans of requests go; the rest of it is filled in by New.
	// Without an Endpoint there are none.
	Tracing tracing.Config

	// SharedKey and SharedKeyFile give the key that relays sign session cookies
	// with; without either the relays agree on one by themselves.
	SharedKey, SharedKeyFile string
	// Insecure lets relays tell each other the key in clear text.
	Insecure bool

	// DrainTimeout is how long a stop waits for requests in flight.
	DrainTimeout time.Duration
	// SessionDrainTimeout is the same, from the same moment on, for tunnels and for
	// answers that have begun. Those that are left after DrainTimeout are ended one
	// after the other, spread over the rest of it. Default 0, as whatever is below
	// DrainTimeout: all end with that.
	SessionDrainTimeout time.Duration
	// ProbeDelay is how long a stopping relay stays up after it became unready,
	// so that load balancers notice. Default 1 s.
	ProbeDelay time.Duration

	// Running are the settings in effect; a reload reads them again and has Tune put
	// what can change while the relay runs into a Config. Nil: there is no reload.
	Running *daemon.Running
	Tune    func(*Config)
	// Monitor lets operators read the log; nil: nobody can.
	Monitor *daemon.Monitor

	Logger   *slog.Logger
	Registry *prometheus.Registry
}
