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

	"github.com/ringway/ringway/membership/discovery"
	"github.com/ringway/ringway/selection/pool"
)

// DefaultPort is the port of a seed that names none: the relays' ingress.
const DefaultPort = 7410

// Config describes a Client. Only Seeds is needed; zero fields mean the defaults.
type Config struct {
	// Seeds are where relays are: host, host:port, ip:port, dns+name[:port] or
	// srv+_relay._tcp.name. The default port is 7410.
	Seeds []string
	// TLS makes the connections use TLS. Its ServerName must be what the relays'
	// certificates are for. Default nil: clear text.
	TLS *tls.Config
	// HTTP1 makes the connections HTTP/1.1, which carries one request at a time, and
	// WebSockets. Default: HTTP/2, in clear text, too.
	HTTP1 bool
	// Pool is how relays are chosen and connections kept. Default nil:
	// pool.DefaultConfig with a random Selector, so that clients spread, and one
	// request per connection for HTTP/1.1.
	Pool *pool.Config
	// Attempts is how many relays a request is sent to at most, 1 to 100. Default 5.
	Attempts int
	// RetryBudget is the share of requests, 0 to 1, that retries may add in the long
	// run, so that a fleet in trouble is not sent twice the load; a reserve of 100
	// covers a relay that dies. Default 0.2; negative means no retries.
	RetryBudget float64
	// RefreshInterval is the longest time between two looks at the seeds: there is one
	// when the TTL of a name has passed, after a second at the soonest. RefreshJitter,
	// at random, is added, to a shorter time in proportion. Defaults 60 s and 5 s.
	RefreshInterval, RefreshJitter time.Duration
	// Resolver looks names up. Default: one that follows the machine's own
	// configuration.
	Resolver *discovery.Resolver
	// Logger is told when relays come and go. Default: discard.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer
}

// withDefaults checks what discovery and pool do not.
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
	if c.Pool == nil {
		defaults := pool.DefaultConfig()
		defaults.Selector = rand.Text()
		if c.HTTP1 {
			defaults.Streams = 1
		}
		c.Pool = &defaults
	}
	if c.HTTP1 && c.Pool.Streams > 1 {
		errs = append(errs, fmt.Errorf("client: Pool.Streams is %d, allowed with HTTP1 is 1: an HTTP/1.1 connection carries one request at a time", c.Pool.Streams))
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c, errors.Join(errs...)
}
