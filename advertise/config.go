package advertise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is the configuration of a Catalogue. Only Gossip is required.
type Config struct {
	// Gossip is the node that this catalogue advertises over. New registers
	// handlers on it, so the node must not have started yet.
	Gossip Gossip
	// Logger receives refused exchanges and forged records. Default: none.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: they are not registered.
	Registerer prometheus.Registerer
	// Interval is how often this node compares its records with one random member,
	// ± 30 %. Default 30 s: records that gossip loses reach all members within about
	// three intervals.
	Interval time.Duration
	// ExchangeRate limits what all exchanges of this node send together, in bytes per
	// second. Default 1 MB/s: after a partition heals, exchanges must not slow down
	// requests. At least 128 kB/s; below that, the largest record could not be sent
	// within the time limit of a frame.
	ExchangeRate int
	// Seed determines with which members and when this node compares its records.
	// Default: random.
	Seed uint64
	// PublishInterval is the least time between two publications of this node's
	// record. Default 1 s: a flapping worker must not fill the gossip queue.
	PublishInterval time.Duration
	// Rules determine which offers become endpoints.
	Rules Rules
	// Probe lets this node check the endpoints that are passed to Catalogue.Observe. Default: it
	// does not, and every endpoint of a live worker may get requests.
	Probe bool
	// Dial connects to these endpoints. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (c *Config) validate() error {
	if c.Gossip == nil {
		return errors.New("advertise: Config.Gossip is nil: pass the membership node")
	}
	if c.Interval < 0 || c.PublishInterval < 0 {
		return fmt.Errorf("advertise: negative interval (%v, %v): use 0 for the default", c.Interval, c.PublishInterval)
	}
	if c.ExchangeRate == 0 {
		c.ExchangeRate = 1_000_000
	}
	if c.ExchangeRate < minExchangeRate {
		return fmt.Errorf("advertise: exchange rate of %d bytes a second: use at least %d, or 0 for the default", c.ExchangeRate, minExchangeRate)
	}
	if err := c.Rules.validate(); err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.PublishInterval = cmp.Or(c.PublishInterval, time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Bounds of the loop.
const (
	mailboxLimit  = 8192 // gossip messages in the mailbox
	maxOutbound   = 2    // exchanges that this node has open at the same time
	maxFetches    = 1024 // hinted records waiting to be fetched
	fetchAttempts = 4    // first at the owner, then at other members
	ownerAttempts = 3    // exchanges of the first attempt, while the owner is busy: all members fetch a new record at the same time
	joinExchanges = 3    // exchanges when this node stops being alone
	spreadLimit   = 16   // most new records of one exchange frame that are gossiped on
	logBurst      = 16   // log lines about peers in a burst; then one per second

	// ownerPause to twice as much is the pause before a busy owner is asked again: an exchange
	// takes milliseconds, while another member may not have the record yet, or not answer.
	ownerPause = 50 * time.Millisecond

	minExchangeRate = 128 << 10 // bytes per second

	expireInterval = time.Minute
	turnInterval   = 5 * time.Second // the loop turns at least this often, so that its age shows a hang
)
