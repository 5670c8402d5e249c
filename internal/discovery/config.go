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

// defaultPort is the port of a seed without one.
const defaultPort = 7400

// Config describes a Finder.
type Config struct {
	// Seeds are the addresses or names to look up: host, host:port, ip, ip:port, [v6]:port,
	// dns+name[:port] or srv+_gossip._udp.name. Duplicates are ignored.
	Seeds []string
	// AllowNoSeeds allows an empty list, for a node that waits until another member joins it.
	AllowNoSeeds bool
	// DefaultPort is the port of seeds without one. Default 7400.
	DefaultPort uint16
	// Resolver looks names up; it may be shared. Default: a new Resolver with the configuration
	// of the machine and with this Logger and Registerer.
	Resolver *Resolver
	// RefreshInterval is the longest time between two refreshes. A refresh happens earlier when
	// a cached answer or failure expires, but at most once per second. Default 60 s.
	RefreshInterval time.Duration
	// RefreshJitter limits a random time that is added to RefreshInterval, so that the members
	// of a fleet do not query simultaneously; for shorter pauses it is reduced in proportion.
	// Default 5 s; negative means none.
	RefreshJitter time.Duration
	// DropAfter is how many consecutive new answers must lack an address before it is dropped:
	// a server that returns only a part of its records, or a pod that is briefly not ready,
	// should not remove a seed. Default 3.
	DropAfter int
	// Exclude reports whether an address must never be listed, such as this node's own. It is
	// called during New and refreshes. Default: none.
	Exclude func(netip.AddrPort) bool
	// Logger receives a line when a seed stops or begins to resolve. Default: discard.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: none.
	Registerer prometheus.Registerer
}

// withDefaults checks all settings together, fills in the defaults and parses the seeds.
func (c Config) withDefaults() (Config, []Seed, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.DefaultPort = cmp.Or(c.DefaultPort, defaultPort)
	if len(c.Seeds) == 0 && !c.AllowNoSeeds {
		bad("no seeds: give at least one, or allow none for a node that waits until another member joins it")
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
