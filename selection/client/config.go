package client

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/membership/discovery"
)

// defaultPort is the port of a seed without one: the relays' ingress.
const defaultPort = 7410

// Config describes a Client. Only Seeds is required; zero fields mean the defaults.
type Config struct {
	// Seeds are the addresses or names of relays: host, host:port, ip:port,
	// dns+name[:port] or srv+_relay._tcp.name. The default port is 7410.
	Seeds []string
	// TLS makes the connections use TLS. Its ServerName must match the relays'
	// certificates. Default nil: clear text.
	TLS *tls.Config
	// HTTP1 selects HTTP/1.1, which carries one request at a time per connection, and
	// WebSockets. Default: HTTP/2, also in clear text.
	HTTP1 bool
	// Primaries is how many relays share the requests, Backups how many more are connected to
	// replace one. Defaults 3 and 2; negative Backups mean none.
	Primaries, Backups int
	// Attempts is the most attempts per request, 1 to 100. Default 5.
	Attempts int
	// RetryBudget is the share of requests, 0 to 1, that retries may add in the long
	// run, so that retries do not double the load of a failing fleet; a reserve of 100
	// retries covers a relay that dies. Default 0.2; negative means no retries.
	RetryBudget float64
	// RefreshInterval is the longest time between two lookups of the seeds: names are
	// looked up again when their TTL has passed, after a second at the earliest. A random
	// time up to RefreshJitter is added, less for shorter intervals in proportion.
	// Defaults 60 s and 5 s.
	RefreshInterval, RefreshJitter time.Duration
	// Resolver looks names up. Default: a resolver with the configuration of the machine.
	Resolver *discovery.Resolver
	// Logger receives a line when relays come and go. Default: discard.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics.
	Registerer prometheus.Registerer

	// pool is set by tests. By default its Selector is random, so that clients spread over the
	// relays, and a connection of HTTP/1.1 carries one request.
	pool *relaypool.Config
}

// withDefaults fills in the defaults and checks the settings that discovery and pool do
// not check.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	c.Attempts = cmp.Or(c.Attempts, 5)
	if c.Attempts < 1 || c.Attempts > 100 {
		errs = append(errs, fmt.Errorf("client: Attempts is %d, allowed is 1 to 100", c.Attempts))
	}
	c.RetryBudget = max(0, cmp.Or(c.RetryBudget, 0.2))
	if !(c.RetryBudget <= 1) {
		errs = append(errs, fmt.Errorf("client: RetryBudget is %v, allowed is at most 1, or less than 0 for no retries", c.RetryBudget))
	}
	if c.RefreshInterval < 0 || c.RefreshJitter < 0 {
		errs = append(errs, fmt.Errorf("client: RefreshInterval and RefreshJitter are %v and %v, allowed is 0 for the defaults of 1m and 5s, or more", c.RefreshInterval, c.RefreshJitter))
	}
	c.RefreshInterval = cmp.Or(c.RefreshInterval, time.Minute)
	c.RefreshJitter = cmp.Or(c.RefreshJitter, 5*time.Second)
	if c.pool == nil {
		defaults := relaypool.DefaultConfig()
		defaults.Selector = rand.Text()
		defaults.Primaries, defaults.Backups = cmp.Or(c.Primaries, defaults.Primaries), max(0, cmp.Or(c.Backups, defaults.Backups))
		if c.HTTP1 {
			defaults.Streams = 1
		}
		c.pool = &defaults
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c, errors.Join(errs...)
}
