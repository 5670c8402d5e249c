package demo

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// security is what the fleet proves itself with: an authority and a gossip key
// that exist in memory only and end with the demo.
type security struct {
	authority *identity.Authority
	key       []byte
}

// Certificates outlive any demo that somebody forgets to stop over a weekend.
const certificateLife = 7 * 24 * time.Hour

func newSecurity() (*security, error) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "ringway demo", Validity: certificateLife + time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the demo's authority: %w", err)
	}
	key, err := membership.ParseKey(membership.GenerateKey())
	if err != nil {
		return nil, fmt.Errorf("make the demo's gossip key: %w", err)
	}
	return &security{authority, key}, nil
}

// equip gives a member its certificate and the key.
func (s *security) equip(c *membership.Config) error {
	var err error
	c.Identity, err = s.authority.Source(identity.Claims{
		Role: identity.Role(c.Role), Cluster: c.Cluster, Environment: c.Environment, Node: c.ID,
	}, certificateLife)
	if err != nil {
		return err
	}
	c.Keyring, err = membership.NewKeyring(s.key)
	return err
}
