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

	"github.com/ringway/ringway/membership/discovery"
	"github.com/ringway/ringway/membership/identity"
)

// DefaultMaxMembers bounds the members of a node: twice the largest fleet that was
// measured.
const DefaultMaxMembers = 20_000

// DefaultGossipPort is the port of a seed that names none.
const DefaultGossipPort = 7400

// Config describes one node. New validates it and fills in the defaults.
type Config struct {
	// Cluster and Environment say where the node belongs. Members with another
	// value in either are refused. Both are required.
	Cluster, Environment string
	// ID is the stable name of this node: it survives restarts and is unique in
	// the cluster. Required; letters, digits, '.', '_', '-', at most 63.
	ID string
	// Role is what this node does. Required.
	Role Role
	// Datacenter and Region place the node; empty means unknown.
	Datacenter, Region string

	// BindAddr is the IP:port for gossip, TCP and UDP. Port 0 takes a free one.
	BindAddr string
	// AdvertiseAddr is the IP:port the others use. Default: the bound address;
	// required when that is unspecified (0.0.0.0 or ::).
	AdvertiseAddr string
	// ForwardAddr and AdminAddr are told to the others; empty when there is none.
	ForwardAddr, AdminAddr string
	// Version is the build version told to the others.
	Version string

	// Seeds are where the node finds the cluster: host, host:port,
	// dns+name[:port] or srv+_gossip._udp.name. Names are resolved again when their
	// records' TTL has passed, after a minute at the latest. Addresses of this node itself are ignored. None means that this node
	// waits to be found.
	Seeds []string
	// Resolver looks seed names up. Default: one that follows the machine's own
	// configuration.
	Resolver *discovery.Resolver
	// RejoinInterval is how often, ± half, the node looks for seeds and lost
	// members that it does not see alive, and joins one of them: a cluster that
	// was split does not heal by itself. An address that never answers is tried after
	// longer and longer pauses, of up to ten intervals ± 25 %, while other members
	// are seen. Default 30 s. A worker that sees no relay
	// looks every 2 to 3 s, if that is sooner.
	RejoinInterval time.Duration
	// PublishInterval is the least time between two snapshots. Default 50 ms: a
	// burst of changes costs its consumers one update.
	PublishInterval time.Duration
	// LeaveTimeout bounds Leave. Default 5 s.
	LeaveTimeout time.Duration
	// MaxMembers bounds the members that this node lets in. Default 20,000, twice
	// the largest fleet that was measured: a forged or taken-over fleet must not
	// fill the memory.
	MaxMembers int
	// MaxNewMembers bounds the members a minute that one member may tell of and that
	// nothing proves yet. Default 20,000: a node that joins hears of all from one.
	MaxNewMembers int

	// Identity has this node's certificate. Streams then run over mutual TLS, and
	// a member's certificate decides what it is. Its claims must be those of this
	// configuration. Default: none, streams in clear text.
	Identity *identity.Source
	// Keyring has the gossip keys. Packets and memberlist's streams are then
	// encrypted. Default: none.
	Keyring *Keyring

	// Network carries packets and streams. Default Sockets{}.
	Network Network
	// Logger gets the story of the node's life. Default: discard.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer

	// lie changes what this node gossips of itself; tests have members that do not
	// tell the truth.
	lie func(*metadata)
	// clock tells the boot time; tests have hosts whose clocks are wrong.
	clock func() time.Time
}

// withDefaults checks everything at once.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	for _, f := range []struct{ name, value string }{{"cluster", c.Cluster}, {"environment", c.Environment}, {"id", c.ID}} {
		if f.value == "" {
			bad("%s is required", f.name)
		} else if err := checkID(f.value); err != nil {
			bad("%s %.80q: allowed are 1 to %d of letters, digits, '.', '_' and '-'", f.name, f.value, maxID)
		}
	}
	if !c.Role.Valid() {
		bad("role %q: allowed are relay, gate, worker", c.Role)
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
		if f.value != "" && checkID(f.value) != nil {
			bad("%s %.80q: allowed are 1 to %d of letters, digits, '.', '_' and '-'", f.name, f.value, maxID)
		}
	}
	for _, f := range []struct{ name, value string }{{"forward address", c.ForwardAddr}, {"admin address", c.AdminAddr}} {
		if f.value != "" && !validAddr(f.value) {
			bad("%s %.80q: give host:port", f.name, f.value)
		}
	}
	if !printable(c.Version) {
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
				bad("%s is %q, the certificate says %q: the others would refuse this member", f.name, f.ours, f.certified)
			}
		}
	}

	c.RejoinInterval = cmp.Or(c.RejoinInterval, 30*time.Second)
	c.PublishInterval = cmp.Or(c.PublishInterval, 50*time.Millisecond)
	c.LeaveTimeout = cmp.Or(c.LeaveTimeout, 5*time.Second)
	c.MaxMembers = cmp.Or(c.MaxMembers, DefaultMaxMembers)
	c.MaxNewMembers = cmp.Or(c.MaxNewMembers, DefaultMaxMembers)
	if c.Network == nil {
		c.Network = Sockets{}
	}
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

// label goes in front of every packet; memberlist drops packets of any other.
func (c Config) label() string { return c.Cluster + "/" + c.Environment }
