package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultPort is the port of a seed that names none.
const DefaultPort = 7400

// Config describes a Finder.
type Config struct {
	// Seeds are where to look: host, host:port, ip, ip:port, [v6]:port,
	// dns+name[:port] or srv+_gossip._udp.name. Repetitions count once.
	Seeds []string
	// AllowNoSeeds permits an empty list: for a node that waits to be found.
	AllowNoSeeds bool
	// DefaultPort is for seeds without a port. Default 7400.
	DefaultPort uint16
	// Resolver looks names up; it may be shared. Default: a new one that follows
	// the machine's own configuration, with this Logger and Registerer.
	Resolver *Resolver
	// RefreshInterval is the longest time between two refreshes: there is one when
	// what is known of a name no longer counts, after a second at the soonest.
	// Default 60 s.
	RefreshInterval time.Duration
	// RefreshJitter is added to it, at random between 0 and this, so that a fleet
	// does not ask in step; to a shorter time in proportion. Default 5 s; negative
	// means none.
	RefreshJitter time.Duration
	// DropAfter is how many new answers in a row must lack an address before it is
	// dropped: servers that give out a part of their records at a time, and pods
	// that are not ready for a moment, should not cost a seed. Default 3.
	DropAfter int
	// Exclude says which addresses are never listed, such as this node's own. It
	// is called during New and refreshes. Default: none.
	Exclude func(netip.AddrPort) bool
	// Logger is told when a seed stops and begins to resolve. Default: discard.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer
}

// withDefaults checks everything at once and parses the seeds.
func (c Config) withDefaults() (Config, []Seed, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.DefaultPort = cmp.Or(c.DefaultPort, DefaultPort)
	if len(c.Seeds) == 0 && !c.AllowNoSeeds {
		bad("no seeds: give at least one, or allow none for a node that waits to be found")
	}
	var seeds []Seed
	for _, text := range c.Seeds {
		seed, err := ParseSeed(text, c.DefaultPort)
		if err != nil {
			errs = append(errs, err)
		} else if !slices.Contains(seeds, seed) {
			seeds = append(seeds, seed)
		}
	}
	if c.RefreshInterval < 0 {
		bad("refresh interval %v: must not be negative", c.RefreshInterval)
	}
	if c.DropAfter < 0 {
		bad("drop after %d answers: must not be negative", c.DropAfter)
	}

	c.RefreshInterval = cmp.Or(c.RefreshInterval, time.Minute)
	c.RefreshJitter = max(0, cmp.Or(c.RefreshJitter, 5*time.Second))
	c.DropAfter = cmp.Or(c.DropAfter, 3)
	if c.Exclude == nil {
		c.Exclude = func(netip.AddrPort) bool { return false }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c, seeds, errors.Join(errs...)
}
