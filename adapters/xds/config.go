package xds

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Config describes a ControlPlane. Only Node and Addr are required.
type Config struct {
	// Node is this process, with the role of an observer. Run starts it and leaves the cluster with
	// it, so it must not have been started. If it has an Identity, the listener takes only
	// clients with a relay's certificate of this cluster, whose node id is that of the
	// certificate, because Envoys take the place of relays.
	Node *membership.Node
	// Addr is the IP:port of the gRPC listener; port 0 selects a free port.
	Addr string
	// TLS replaces the Identity of the Node for the listener. The node ids of clients are then
	// not proven: set ClientAuth, and give certificates to these clients only.
	TLS *tls.Config
	// Insecure allows an address that other hosts can reach without TLS.
	Insecure bool

	// Clients is the fixed list of clients, with their places, which count in place of the
	// localities that they report: they alone are served, and each of them has its range at all
	// times, connected or not. Control planes that are active at the same time need the same
	// list. Default: the clients are those with an open stream, and those whose last stream
	// ended less than Grace ago; then only one control plane may be active.
	Clients []affinity.Relay
	// Plan has the settings of all plans. The control plane sets Service, Relays,
	// RelaysPerService, Workers and WorkersOrdered: an Envoy cannot forward requests to
	// another, so every client of a service is one of its relays. Default: as
	// affinity.PlanConfig, with the index source rank: where all serve, no relay is left over to
	// take the slot of another.
	Plan affinity.PlanConfig
	// Grace is how long a client whose last stream has ended, or a worker that vanished, keeps
	// its place in the plans, so that a restart moves no range. Default 15 s, as for relays;
	// negative is none.
	Grace time.Duration
	// Gather is how long after the start nothing is sent: clients that connect again after a
	// restart of the control plane keep what they have until they are all counted. It must
	// exceed the time that Envoys wait between two attempts to connect, and be shorter than
	// their initial_fetch_timeout of 15 s. Default 10 s; negative is none. It has no effect
	// with a fixed list.
	Gather time.Duration

	// RequireServiceNames sends no endpoint of a worker whose certificate names no services, as
	// --require-service-names of the relays does: Envoys and relays then send requests to the same
	// workers. Default: the services of a certificate are held against it if it names some.
	RequireServiceNames bool
	// AllowedAddrs are networks in which workers may run services in addition to their own hosts,
	// as with --endpoint-allowed-cidr of all other members. It has no effect without an Identity.
	// Default: none.
	AllowedAddrs []netip.Prefix
	// MaxServicesPerRecord is how many services one worker may offer, at most 1,024; a worker that
	// offers more has no endpoint. All other members have the same --max-services-per-record.
	// Default 128.
	MaxServicesPerRecord int

	// MaxClients bounds the number of clients, including those within Grace. Default 1024.
	MaxClients int
	// MaxServices bounds the number of services of one client. Default 512.
	MaxServices int

	// Logger receives the log. Default: that of the node.
	Logger *slog.Logger
	// Registerer receives the metrics, until Run or Close ends. Default: that of the node.
	Registerer prometheus.Registerer
}

const (
	defaultGrace       = 15 * time.Second
	defaultGather      = 10 * time.Second
	defaultMaxClients  = 1024
	defaultMaxServices = 512

	// planInterval is the least time between two rounds of plans: clients that connect at the
	// same time after a restart cost one round.
	planInterval = 50 * time.Millisecond
	// maxRequest bounds a request in bytes: the node of an Envoy lists its extensions, about
	// 60 kB.
	maxRequest = 1 << 20
	// window bounds the bytes of one stream that wait to be read. gRPC takes no less, and without it
	// raises the window of a client that sends quickly to 16 MiB for each stream.
	window = 64 << 10
	// maxHeader bounds the header fields of a stream in bytes, which stay as long as the stream; those of
	// an Envoy have some hundred. gRPC's default is 16 MiB.
	maxHeader = 8 << 10
	// readBuffer is the buffer of each connection in bytes: most connections are silent, and requests short.
	readBuffer = 4 << 10
	// idleTime is how long a connection stays without a stream: Envoy opens one with the connection.
	idleTime = 5 * time.Second
	// maxStreams bounds the streams of one client. With ADS one is enough; otherwise Envoy
	// opens one for each cluster.
	maxStreams = 64
	// maxConns bounds the connections of one certificate. One is enough; the others are those of a
	// client that connects again before the old ones are found dead.
	maxConns = 16
	// requestRate and requestBurst bound the requests of one stream, per second and together: an Envoy
	// sends one for each response, and one for each cluster when it starts.
	requestRate, requestBurst = 100, 1000
	// maxSilent bounds the streams that have sent no request yet.
	maxSilent = 256
)

// complete checks the configuration, all of it, and fills in the defaults.
func (c Config) complete() (Config, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf("xds: "+format, args...)) }
	if c.Node == nil {
		return c, errors.New("xds: no Node: give the one that membership.New returns")
	}
	member := c.Node.Config()
	if member.Role != identity.RoleObserver {
		problem("the node %q is a %s: give it the role %s, because requests would be sent to a relay or gate, and a worker offers services", member.ID, member.Role, identity.RoleObserver)
	}
	addr, err := netip.ParseAddrPort(c.Addr)
	switch {
	case err != nil:
		problem("Addr %q: want IP:port", c.Addr)
	case !addr.Addr().IsLoopback() && !c.Insecure && c.TLS == nil && member.Identity == nil:
		problem("other hosts can reach Addr %s, and nothing protects it: give the Node an Identity, or set TLS or Insecure", c.Addr)
	}
	switch {
	case !c.RequireServiceNames:
	case member.Identity == nil:
		problem("RequireServiceNames, and the node %q has no certificate, so none is checked: give it an Identity", member.ID)
	case member.Identity.Info().Template != "": // once, at the start
		problem("RequireServiceNames, and the Identity of the node %q has a Template, with which no certificate names services, so every offer would be refused: leave one of the two out", member.ID)
	}
	if p := c.Plan; p.Service != "" || p.Relays != nil || p.Skip != nil || p.Workers != nil || p.RelaysPerService != 0 || p.WholeRange {
		problem("Plan has Service, Relays, Skip, Workers, RelaysPerService or WholeRange: leave them out, because they follow from clients and offers")
	}
	ids := map[string]bool{}
	for _, client := range c.Clients {
		if err := checkClient(client); err != nil {
			problem("Clients: %w", err)
		}
		if ids[client.ID] {
			problem("Clients has %q twice: remove one", client.ID)
		}
		ids[client.ID] = true
	}
	for _, limit := range []struct {
		name  string
		value *int
		usual int
	}{{"MaxClients", &c.MaxClients, defaultMaxClients}, {"MaxServices", &c.MaxServices, defaultMaxServices}} {
		if *limit.value < 0 {
			problem("%s %d is negative: give 0 for the default of %d, or more", limit.name, *limit.value, limit.usual)
		}
		*limit.value = cmp.Or(*limit.value, limit.usual)
	}
	if len(c.Clients) > c.MaxClients {
		problem("Clients has %d entries and MaxClients is %d: raise MaxClients", len(c.Clients), c.MaxClients)
	}
	c.Plan.IndexSource = cmp.Or(c.Plan.IndexSource, affinity.IndexRank)
	c.Clients = slices.Clone(c.Clients)
	c.Grace, c.Gather = max(0, cmp.Or(c.Grace, defaultGrace)), max(0, cmp.Or(c.Gather, defaultGather))
	if len(c.Clients) > 0 {
		c.Gather = 0
	}
	if c.Logger == nil {
		c.Logger = member.Logger
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = member.Registerer
	}
	return c, errors.Join(problems...)
}

// checkClient checks the id and the place of a client. Both are input of hashes and parts of
// log lines and metadata.
func checkClient(c affinity.Relay) error {
	if err := identity.CheckName(c.ID); err != nil {
		return fmt.Errorf("node id %w", err)
	}
	for _, place := range []string{c.Datacenter, c.Region} {
		if place == "" {
			continue
		}
		if err := identity.CheckName(place); err != nil {
			return fmt.Errorf("locality of %s: %w", c.ID, err)
		}
	}
	return nil
}
