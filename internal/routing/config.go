package routing

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// Catalogue is the part of advertise.Catalogue that the router uses. It is an interface so that
// tests can deliver views at the moments that they choose.
type Catalogue interface {
	Watch(ctx context.Context) <-chan *advertise.View
}

// Config describes a Router.
type Config struct {
	// Self is the ID of this relay.
	Self string
	// Role is relay, gate for a process that only forwards, or observer for one that is in no
	// plan and uses an affinity.ObserverRange of each service. So does a relay whose member gossips
	// no ForwardAddr, because others could not forward to it.
	Role identity.Role
	// Endpoints is the most endpoints of that range. Default 0: all.
	Endpoints int
	// Catalogue is followed. Each of its views contains the members of the same moment, so
	// relays and endpoints are always consistent. Required.
	Catalogue Catalogue

	// PickOnly means that no connection to a worker or relay is opened, also not to probe it:
	// the process carries requests itself, to endpoints that Service.Pick names. Target.Pool
	// is then nil, Service.Relays too. Default: connections.
	PickOnly bool

	// Plans configures every plan; SetPlans replaces it. Links configures the connections when
	// plans change.
	Plans PlanSettings
	Links LinkConfig
	// PlansFromFleet lets settings with a higher version, which other relays state, replace
	// Plans. SetPlans replaces it, too. Default false: they are ignored.
	PlansFromFleet bool
	// State is called on the goroutine of Run with the settings in use, when they change, from
	// the moment on at which the router settles. It must not block. Default: not called.
	State func(advertise.PlanSettings)
	// Selection configures the balancers. New sets OnEvict, which counts evictions.
	Selection selection.Config
	// Strategies holds the strategies with which endpoints are picked.
	Strategies StrategiesConfig
	// Forwarding configures the choice of the few relays, among those that serve a service,
	// to which this relay keeps connections and forwards. The router sets Selector, Streams,
	// Datacenter and Region. Without Primaries their number follows from how many relays serve
	// the service and how many members forward to them, 3 at least. Default:
	// relaypool.DefaultConfig without Primaries.
	Forwarding relaypool.Config
	// Upstream configures the connections to workers and relays. The router sets Address,
	// Protocol, TLS, Dial, Activity and Sessions.
	Upstream upstream.Config
	// Datacenter and Region are the place of this relay: it forwards to near relays.
	Datacenter, Region string

	// CoalesceDelay is the least time between two plans. A change is planned immediately if the
	// last plan is older, so that a single change does not wait; a burst costs one plan for
	// each interval. Until the router is settled, and so while the first members and offers
	// arrive, every change waits this long. Default 100 ms.
	CoalesceDelay time.Duration
	// AuditInterval is how often the existing connections are compared with the planned
	// ones. Default 2 s.
	AuditInterval time.Duration
	// ReachTimeout is how long this relay may reach none of the workers that it should reach
	// before Unreached reports it. Default 10 s: the restart of the only worker, or a few
	// lost packets, must not take a relay out of rotation.
	ReachTimeout time.Duration
	// Identity has this relay's certificate; other relays and secured endpoints are reached
	// over mutual TLS. Default: none; relays are then reached in clear text and secured
	// endpoints not at all.
	Identity *identity.Source
	// AllowClearText names services that may be reached in clear text although this relay
	// has a certificate. Default: none.
	AllowClearText []string
	// Dial opens connections to workers and relays. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ServiceTLS is how the certificates of services with h2 are checked that this relay
	// connects to without a sidecar.
	ServiceTLS ServiceTLSConfig
	// Listeners are the addresses on which this process listens. Hosts are further names of
	// its host for other members, as host or host:port. No request goes to a listener of the
	// relay itself, whatever a worker offers. Default: none.
	Listeners, Hosts []string
	// Epoch is the zero of selection.Instant, the same as for the times of requests.
	// Required.
	Epoch time.Time
	// Vanished is called for each service that is no longer known, on the goroutine of Run,
	// when Service does not find it any more and it is Gone. It must not block. Default: not
	// called.
	Vanished func(*Service)
	// StateTraffic states to the other relays how many requests per second this relay sends to the
	// workers of each service, at most every TrafficMemory, on the goroutine of Run. It must not
	// block. Default: nothing is measured or stated.
	StateTraffic func([]advertise.Traffic)
	// TrafficMemory is the time constant of the averages that are stated. The rule in demand
	// follows from it: shorter ones are noisier and cause more plans. Default 30 s.
	TrafficMemory time.Duration
	// Sessions is passed to all connections for their tunnels and streams. Default: none.
	Sessions *upstream.Sessions
	// Logger reports when this relay's role for a service changes, and when an offer appears
	// or vanishes, limited to some lines a second. Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

// PlanSettings are what the plans of all services have in common; begin with
// [DefaultPlanSettings]. All relays must plan with the same values, otherwise their ranges do not
// fit together: those with the highest version in the fleet replace the others. The zero value of
// every field means its default.
type PlanSettings struct {
	// Version orders the settings of a fleet. Default 0: they apply to this relay, while no
	// relay has a version.
	Version uint64
	// PlanConfig is what each plan begins with. Its RelaysPerService is for services whose workers
	// do not ask for a number of relays; see Votes. The router sets what differs between services:
	// Service, Relays, Skip, Workers, WorkersOrdered and WholeRange.
	affinity.PlanConfig
	// MaxRelaysPerService bounds the number that workers can ask for. Default 64. What they ask
	// for is raised to Minimums.PeersPerWorker in any case.
	MaxRelaysPerService int
	// Skip lists by service the relays that must not serve it.
	Skip map[string][]string
	// Selections and Cookies are what strategies and session cookies require of the plans, by service;
	// that of Selections under "" is for services whose workers advertise no strategy. A router sets
	// them from its Config.Strategies.
	Selections, Cookies map[string]Need
}

// DefaultPlanSettings returns the defaults, those of affinity for its own settings.
func DefaultPlanSettings() PlanSettings { return PlanSettings{}.withDefaults() }

// withDefaults fills in the default of every field that is zero.
func (c PlanSettings) withDefaults() PlanSettings {
	c.PlanConfig = c.PlanConfig.WithDefaults()
	c.MaxRelaysPerService = cmp.Or(c.MaxRelaysPerService, DefaultMaxRelaysPerService)
	return c
}

func (c PlanSettings) validate() error {
	if err := c.Minimums.Validate(); err != nil {
		return err
	}
	if k, m := c.RelaysPerService, c.Minimums.PeersPerWorker; k != 0 && k < m {
		return fmt.Errorf("routing: %d relays per service, and each worker needs %d (the min peers per worker): allowed are %d or more, or 0 for an automatic number", k, m, m)
	}
	return nil
}

// ServiceTLSConfig is how a relay checks the certificates of services.
type ServiceTLSConfig struct {
	// Roots are the authorities. Default: those of this host.
	Roots *x509.CertPool
	// Names are what the certificates of services must be for, by service; under "" for all
	// others. Default: the host that the worker advertises.
	Names map[string]string
}

func (c ServiceTLSConfig) name(service string) string { return cmp.Or(c.Names[service], c.Names[""]) }

// LinkConfig limits how much connections change when plans do.
type LinkConfig struct {
	// DrainDelay is how long a connection that is no longer in the range stays open. It must
	// exceed the time until the relays agree. Default 30 s; negative closes immediately.
	DrainDelay time.Duration
	// Slack is how many places outside the range an open connection is kept, in a long range for
	// each 50 workers ([affinity.Plan.Keeps]). Default 0: none.
	Slack int
	// Grace is how long a relay or worker that has vanished keeps its place in the plans, so
	// that its restart moves nothing. Default 0: not at all.
	Grace time.Duration
}

// DefaultLinks suits fleets whose relays agree within seconds, and restarts within 15 s.
func DefaultLinks() LinkConfig {
	return LinkConfig{DrainDelay: 30 * time.Second, Slack: 2, Grace: 15 * time.Second}
}
