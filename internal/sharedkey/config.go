package sharedkey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Members is the part of a [membership.Node] that a Keeper needs.
type Members interface {
	// Snapshot returns the newest snapshot; nil means an empty cluster.
	Snapshot() *membership.Snapshot
	// Watch delivers the newest snapshot until ctx ends, then closes.
	Watch(ctx context.Context) <-chan *membership.Snapshot
}

// Config holds the settings of a Keeper. Begin with [DefaultConfig]: a zero in a field with
// a default is refused and not replaced by the default, so that a wrong setting is noticed.
type Config struct {
	// ID and Epoch identify this instance, like those of its membership.Node. Required.
	ID    string
	Epoch uint64
	// Role is relay or gate. Required. A gate uses the relays' key and never generates one.
	Role identity.Role
	// Members returns the relays that can be asked. Required.
	Members Members
	// Joined reports that the cluster was found, or that there is none to find. Before that this
	// relay does not generate a key, because it sees no relay to ask. Default: always true.
	Joined func() bool

	// Value is the key that an operator set by flag or environment: hex digits, or raw bytes, at
	// least 32 of them. It takes precedence over all other sources. Empty: none.
	Value Secret
	// File holds the key in the same form. It may appear or be replaced later. It is not read if
	// there is a Value. Empty: none.
	File string

	// Authorize admits or refuses the asker by its certificate; the error is the reason. If it is
	// set, answers are sent only over TLS, and Client must present our certificate. nil: there are
	// no certificates.
	Authorize func(*http.Request) error
	// Seal returns the gossip keys, of at least 32 bytes each, the primary key first. If there are
	// no certificates, answers are sealed with the primary key, and those of others are opened with
	// any of the keys, so that a rotation of the gossip keys does not interrupt the exchange. It is
	// called for each answer. Default: none.
	Seal func() []Secret
	// Insecure allows answers in clear text to all peers if there is neither.
	Insecure bool
	// Label is cluster/environment: answers with another label are ignored.
	Label string
	// Client returns the client for asking a relay, so that its TLS configuration can expect
	// exactly that relay. Redirects are not followed. Default, only without Authorize: a client
	// without proxy and idle connections.
	Client func(membership.Member) *http.Client
	// Dial opens the connections of that default client. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Fetch asks a relay, instead of HTTP. It must end when its context ends, and should fail with
	// one of the errors of this package if one applies. It is called from up to 16 goroutines.
	// Default: GET Path at the member's ForwardAddr.
	Fetch func(context.Context, membership.Member) (Answer, error)

	// Attempts is how often the other relays are asked before this relay generates its own
	// key; 1 to 100,000. Default 30, which with Interval takes 15 s and more: longer than
	// the cluster needs to notice that a relay is gone.
	Attempts int
	// Interval is the pause between two attempts; 1 ms to 1 min. Default 500 ms.
	Interval time.Duration
	// Timeout limits the request to one relay; 1 ms to 1 min. Default 1 s.
	Timeout time.Duration
	// LookInterval is the pause between two checks for another key, once there is a key, ±
	// 25 %; Interval to 1 h. The pause begins at Interval and doubles; it begins again
	// after every change of the relays or the key. A check asks the relays that are not
	// known to hold our key and three of the others. Default 30 s.
	LookInterval time.Duration
	// Retire is how long a replaced key is accepted for verification; 0 to 1 year. 0 refuses it
	// immediately. Default 24 h, the lifetime of the cookies.
	Retire time.Duration

	// Logger receives lines about the source of the key and about forks, and an error if this relay
	// had to generate its own key. Default: discarded.
	Logger *slog.Logger
	// Registerer receives the metrics; nil: no metrics.
	Registerer prometheus.Registerer
}

// DefaultConfig returns every default. Required fields are empty.
func DefaultConfig() Config {
	return Config{
		Attempts: 30, Interval: 500 * time.Millisecond, Timeout: time.Second,
		LookInterval: 30 * time.Second, Retire: 24 * time.Hour,
		Joined: func() bool { return true },
		Logger: slog.New(slog.DiscardHandler),
	}
}

// sealing reports whether answers are sealed: certificates take precedence.
func (c *Config) sealing() bool { return c.Authorize == nil && c.Seal != nil }

// complete sets the defaults of fields that are nil, and returns all problems of the others.
func (c *Config) complete() error {
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
	if c.Role != identity.RoleRelay && c.Role != identity.RoleGate {
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
