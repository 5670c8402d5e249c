package sharedkey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership"
)

// Members is what a Keeper needs of a [membership.Node].
type Members interface {
	// Snapshot is the newest snapshot; nil is an empty cluster.
	Snapshot() *membership.Snapshot
	// Watch delivers the newest snapshot until ctx ends, then closes.
	Watch(ctx context.Context) <-chan *membership.Snapshot
}

// Config is how a Keeper works. Begin with [DefaultConfig]: a zero in a field
// with a default is refused and not replaced, so that a setting that somebody
// got wrong is noticed.
type Config struct {
	// ID and Epoch name this instance, as its membership.Node does. Required.
	ID    string
	Epoch uint64
	// Role is relay or gate. Required. A gate follows the relays' key and never
	// makes one.
	Role membership.Role
	// Members tells who can be asked. Required.
	Members Members
	// Joined reports that the cluster was found, or that there is none to find.
	// Until then this relay makes no key of its own accord, as it sees nobody to
	// ask. Default: always true.
	Joined func() bool

	// Value is the key as an operator gave it by flag or environment: hex digits,
	// or raw bytes, at least 32 of them. It beats all other sources. Empty: none.
	Value Secret
	// File holds the key in the same form. It may appear or be replaced later. It
	// is not read when there is a Value. Empty: none.
	File string

	// Authorize admits askers by their certificate: the error says why not. With
	// it answers go over TLS only, and Client must present our certificate. nil:
	// there are no certificates.
	Authorize func(*http.Request) error
	// Seal returns the gossip keys, of at least 32 bytes each, the one in use
	// first. Where there are no certificates, answers are sealed under that one
	// and those of others are opened with any, so that a rotation of the gossip
	// keys stops nothing. It is called each time. Default: none.
	Seal func() []Secret
	// Insecure allows clear answers to everyone where there is neither.
	Insecure bool
	// Label is cluster/environment: answers of another are ignored.
	Label string
	// Client is the client to ask a relay with, so that its TLS configuration can
	// expect exactly that relay. Redirects are not followed. Default, without
	// Authorize only: a client without proxy and idle connections.
	Client func(membership.Member) *http.Client
	// Fetch asks a relay, in place of HTTP. It must end when its context does, and
	// fail with one of the errors of this package where one fits. It is called
	// from up to 16 goroutines. Default: GET Path at the member's ForwardAddr.
	Fetch func(context.Context, membership.Member) (Answer, error)

	// Attempts is how often the others are asked before this relay makes its own
	// key; 1 to 100,000. Default 30, with Interval 15 s and more: longer than the
	// cluster takes to notice a relay that is gone.
	Attempts int
	// Interval is the pause between two attempts; 1 ms to 1 min. Default 500 ms.
	Interval time.Duration
	// Timeout bounds the asking of one relay; 1 ms to 1 min. Default 1 s.
	Timeout time.Duration
	// LookInterval is the pause between two looks for another key, once there is
	// one, give or take a quarter; Interval to 1 h. It begins at Interval and
	// doubles, after every change of the relays or the key anew. A look asks the
	// relays that are not known to hold our key and three of the others. Default
	// 30 s.
	LookInterval time.Duration
	// Retire is how long a key that was replaced is accepted for verification; 0
	// to 1 year. 0 refuses it at once. Default 24 h, the life of the cookies.
	Retire time.Duration

	// Logger gets what an operator must know: where the key came from, forks, and
	// as an error that this relay had to make its own. Default: discarded.
	Logger *slog.Logger
	// Registerer gets the metrics; nil: nowhere.
	Registerer prometheus.Registerer
}

// DefaultConfig has every default and nothing that is required.
func DefaultConfig() Config {
	return Config{
		Attempts: 30, Interval: 500 * time.Millisecond, Timeout: time.Second,
		LookInterval: 30 * time.Second, Retire: 24 * time.Hour,
		Joined: func() bool { return true },
		Logger: slog.New(slog.DiscardHandler),
	}
}

// sealing reports that answers are sealed: certificates come first.
func (c *Config) sealing() bool { return c.Authorize == nil && c.Seal != nil }

// validate lists everything that is wrong.
func (c *Config) validate() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	between := func(name string, d, low, high time.Duration) {
		if d < low || d > high {
			wrong("%s is %v: use %v to %v", name, d, low, high)
		}
	}
	if c.Attempts < 1 || c.Attempts > 100_000 {
		wrong("Attempts is %d: use 1 to 100000", c.Attempts)
	}
	if c.Authorize != nil && c.Client == nil && c.Fetch == nil {
		wrong("Client is missing: with Authorize, other relays are asked over TLS with our certificate")
	}
	if c.Authorize == nil && c.Seal == nil && !c.Insecure {
		wrong("the shared key would travel in clear text: give certificates (Authorize) or a gossip key (Seal), or allow it (Insecure, --insecure)")
	}
	if c.Epoch == 0 {
		wrong("Epoch is 0: use the node's boot time in ms")
	}
	if c.ID == "" || len(c.ID) > maxGenerator {
		wrong("ID has %d bytes: use the node's id, of 1 to %d bytes", len(c.ID), maxGenerator)
	}
	between("Interval", c.Interval, time.Millisecond, time.Minute)
	between("LookInterval", c.LookInterval, max(c.Interval, time.Millisecond), time.Hour)
	if c.Members == nil {
		wrong("Members is nil: pass the membership node")
	}
	between("Retire", c.Retire, 0, 365*24*time.Hour)
	if c.Role != membership.RoleRelay && c.Role != membership.RoleGate {
		wrong("Role is %q: only relay and gate share the key", c.Role)
	}
	if c.Seal != nil {
		secrets := c.Seal()
		if len(secrets) == 0 {
			wrong("Seal has no key: give the gossip keys, or leave it out")
		}
		for _, secret := range secrets {
			if n := len(secret); n < minSeal {
				wrong("Seal has %d bytes: a gossip key has %d", n, minSeal)
			}
		}
	}
	between("Timeout", c.Timeout, time.Millisecond, time.Minute)
	if c.Joined == nil {
		c.Joined = func() bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(problems...)
}
