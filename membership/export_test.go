package membership

import (
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// What the histories of package membership_test do that no configuration allows.

var (
	TestKey         = testKey
	ClaimsOf        = claimsOf
	StartNameServer = startNameServer
)

type NameServer = nameServer

// Fingerprint is the name of a key in logs.
func Fingerprint(key []byte) string { return fingerprintOf(key) }

// Use makes an installed key the primary one of this keyring alone.
func (k *Keyring) Use(fingerprint string) error { return k.useSince(fingerprint, k.next()) }

// Install is what the operation InstallKey does at one node.
func (k *Keyring) Install(key []byte) error { return k.install(key) }

// ID is the id of the node.
func (n *Node) ID() string { return n.cfg.ID }

// SetClock gives a node the clock of another machine.
func (c *Config) SetClock(now func() time.Time) { c.clock = now }

// Borrow makes a node show a certificate that New would refuse, as another build might.
func (n *Node) Borrow(source *identity.Source) {
	n.cfg.Identity, n.transport.identity = source, source
	n.secure()
	_ = n.describe() // it fitted before
}

// LieAbout makes a node gossip what its certificate denies.
func (n *Node) LieAbout(what string) error {
	return gossipAs(n, func(m *gossip.Metadata) {
		switch what {
		case "role":
			m.Role = string(identity.RoleRelay)
		case "datacenter":
			m.Datacenter = "elsewhere"
		}
	})
}

// Refusals counts the peers that came and were refused.
func (n *Node) Refusals(reason string) float64 {
	return testutil.ToFloat64(n.metrics.refusals.WithLabelValues(inbound, reason))
}
