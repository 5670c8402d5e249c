package relay

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection/circuit"
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

	// See ingress.Config.
	Domain             string
	Routes             []ingress.Route
	RequestTimeout     time.Duration
	MaxAttempts        int
	RetryBudget        float64
	MaxInFlight        int
	ExposeRouteHeaders bool
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
