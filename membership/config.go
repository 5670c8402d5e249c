package membership

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// DefaultMaxMembers limits the members of a node: 20,000 workers and 300 relays, and a fifth more
// for those that restart under another id.
const DefaultMaxMembers = 25_000

// DefaultGossipPort is the port of a seed without one.
const DefaultGossipPort = 7400

// Config describes one node. New validates it and fills in the defaults.
type Config struct {
	// Cluster and Environment identify the cluster. Members with another value in either
	// are refused. Both are required.
	Cluster, Environment string
	// ID is the stable name of this node: it survives restarts and is unique in
	// the cluster. Required; letters, digits, '.', '_', '-', at most 63.
	ID string
	// Role is what this node does. Required.
	Role identity.Role
	// Datacenter and Region are the place of the node; empty means unknown.
	Datacenter, Region string

	// BindAddr is the IP:port for gossip, TCP and UDP. Port 0 selects a free port.
	BindAddr string
	// AdvertiseAddr is the IP:port that other members use. Default: the bound address;
	// required if that is unspecified (0.0.0.0 or ::).
	AdvertiseAddr string
	// ForwardAddr and AdminAddr are announced to other members; empty if there is none.
	ForwardAddr, AdminAddr string
	// Version is the build version, announced to other members.
	Version string

	// Seeds are addresses or names of members to join: host, host:port, dns+name[:port] or
	// srv+_gossip._udp.name. Names are resolved again when the TTL of their records has
	// passed, after a minute at the latest. Addresses of this node itself are ignored.
	// Without seeds the node waits until another member joins it.
	Seeds []string
	// Resolver looks seed names up. Make one with package membership/discovery. Default: a
	// resolver with the configuration of the machine.
	Resolver *discovery.Resolver
	// RejoinInterval is how often, ± half, the node looks for seeds and lost members that
	// it does not see alive, and joins one of them: a split cluster does not heal without
	// this. While other members are seen, an address that never answers is tried after
	// growing pauses of up to ten intervals ± 25 %. Default 30 s. A worker that sees no
	// relay looks every 2 to 3 s if that is shorter.
	RejoinInterval time.Duration
	// PublishInterval is the least time between two snapshots. Default 5 µs for each member,
	// so 1 ms in a cluster of 200 and 50 ms in one of 10,000: a snapshot costs about 1 µs for
	// each member, and a burst of changes must not occupy a processor.
	PublishInterval time.Duration
	// LeaveTimeout limits the duration of Leave. Default 5 s.
	LeaveTimeout time.Duration
	// MaxMembers limits the members that this node admits. Default [DefaultMaxMembers]:
	// forged members must not exhaust the memory.
	MaxMembers int
	// MaxNewMembers limits how many unproven members per minute one member may announce.
	// Default [DefaultMaxMembers]: a joining node learns of all members from one.
	MaxNewMembers int

	// Identity holds this node's certificate. Streams then use mutual TLS, and a member's
	// certificate determines its identity. The claims of the certificate must match this
	// configuration. Default: none, streams in clear text.
	Identity *identity.Source
	// Keyring holds the gossip keys. Packets and memberlist's streams are then encrypted.
	// Default: none.
	Keyring *Keyring

	// Network carries packets and streams, also the connections of a router of this node.
	// Default: that of the operating system.
	Network Network
	// Logger receives the log lines of the node. Default: discard.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: none.
	Registerer prometheus.Registerer

	// clock returns the boot time; for tests of hosts with wrong clocks.
	clock func() time.Time
}

// withDefaults checks all settings, reports all problems together and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	for _, f := range []struct{ name, value string }{{"cluster", c.Cluster}, {"environment", c.Environment}, {"id", c.ID}} {
		if f.value == "" {
			bad("%s is required", f.name)
		} else if err := identity.CheckName(f.value); err != nil {
			bad("%s %w", f.name, err)
		}
	}
	if !c.Role.Member() {
		bad("role %q: allowed are relay, gate, worker, observer", c.Role)
	}
	if c.Role == identity.RoleObserver && c.ForwardAddr != "" {
		bad("forward address %.80q: an observer answers nothing: leave it empty, or give the role relay", c.ForwardAddr)
	}
	if bind, err := netip.ParseAddrPort(c.BindAddr); err != nil {
		bad("gossip address %q: give IP:port", c.BindAddr)
	} else if bind.Addr().IsUnspecified() && c.AdvertiseAddr == "" {
		bad("gossip address %s listens on every interface: set the address that other members reach this one at", c.BindAddr)
	}
	if c.AdvertiseAddr != "" {
		if a, err := netip.ParseAddrPort(c.AdvertiseAddr); err != nil || a.Addr().IsUnspecified() || a.Port() == 0 {
			bad("advertise address %q: give the IP:port that other members reach this one at", c.AdvertiseAddr)
		}
	}
	for _, s := range c.Seeds {
		if _, err := discovery.ParseSeed(s, DefaultGossipPort); err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range []struct{ name, value string }{{"datacenter", c.Datacenter}, {"region", c.Region}} {
		if f.value == "" {
			continue
		}
		if err := identity.CheckName(f.value); err != nil {
			bad("%s %w", f.name, err)
		}
	}
	for _, f := range []struct{ name, value string }{{"forward address", c.ForwardAddr}, {"admin address", c.AdminAddr}} {
		if f.value != "" && !gossip.ValidAddr(f.value) {
			bad("%s %.80q: give host:port", f.name, f.value)
		}
	}
	if !gossip.Printable(c.Version) {
		bad("version %.80q: it has characters that cannot be printed", c.Version)
	}
	if c.MaxMembers < 0 || c.MaxNewMembers < 0 {
		bad("limits of %d members and %d new ones a minute: must not be negative", c.MaxMembers, c.MaxNewMembers)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"rejoin interval", c.RejoinInterval}, {"publish interval", c.PublishInterval}, {"leave timeout", c.LeaveTimeout}} {
		if d.value < 0 {
			bad("%s %v: must not be negative", d.name, d.value)
		}
	}

	if c.Identity != nil {
		claims := c.Identity.Claims()
		for _, f := range []struct{ name, ours, certified string }{
			{"cluster", c.Cluster, claims.Cluster}, {"environment", c.Environment, claims.Environment},
			{"id", c.ID, claims.Node}, {"role", string(c.Role), string(claims.Role)}, {"datacenter", c.Datacenter, claims.Datacenter},
		} {
			if f.ours != f.certified && (f.name != "datacenter" || f.certified != "") {
				bad("%s is %q, the certificate has %q: other members would refuse this member", f.name, f.ours, f.certified)
			}
		}
	}

	c.RejoinInterval = cmp.Or(c.RejoinInterval, 30*time.Second)
	c.LeaveTimeout = cmp.Or(c.LeaveTimeout, 5*time.Second)
	c.MaxMembers = cmp.Or(c.MaxMembers, DefaultMaxMembers)
	c.MaxNewMembers = cmp.Or(c.MaxNewMembers, DefaultMaxMembers)
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.clock == nil {
		c.clock = time.Now
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("membership: %w", errors.Join(errs...))
	}
	return c, nil
}

// label is the prefix of every packet; memberlist drops packets with another label.
func (c Config) label() string { return c.Cluster + "/" + c.Environment }
