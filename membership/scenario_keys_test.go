package membership_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// certificateLife outlasts every history.
const certificateLife = 30 * 24 * time.Hour

// security is what a history's fleet is secured with. The zero value is nothing.
type security struct {
	key       int // the number of the key that a new member is given; 0 is none
	authority *identity.Authority
}

// arm gives a process its keys and a certificate that states what its configuration
// states.
func (s *security) arm(p *process, cfg *membership.Config) (err error) {
	if s.key > 0 {
		if p.State.keyring == nil {
			if p.State.keyring, err = membership.NewKeyring(membership.TestKey(s.key)); err != nil {
				return err
			}
		}
		cfg.Keyring = p.State.keyring
	}
	if s.authority != nil {
		cfg.Identity, err = s.certificate(membership.ClaimsOf(cfg))
	}
	return err
}

// certificate is good, and was issued a day ago: a member whose clock is a little
// behind accepts it.
func (s *security) certificate(claims identity.Claims) (*identity.Source, error) {
	a, err := s.authorityWithClock(-24 * time.Hour)
	if err != nil {
		return nil, err
	}
	cert, key, err := a.Issue(claims, certificateLife)
	if err != nil {
		return nil, err
	}
	return identity.NewStaticSource(identity.PEM{Certificate: cert, Key: key, Authorities: a.CertificatePEM()}, identity.SourceConfig{})
}

func (c *cluster) secure(a args) (err error) {
	c.security.key = 1
	if a[0] != "" {
		// It began long ago, so that it can have issued what ended long ago.
		c.security.authority, err = identity.NewAuthority(identity.AuthorityConfig{
			Validity: 10 * certificateLife, Now: func() time.Time { return time.Now().Add(-certificateLife) },
		})
	}
	return err
}

// authorityWithClock is the fleet's authority on a machine whose clock is wrong.
func (s *security) authorityWithClock(skew time.Duration) (*identity.Authority, error) {
	key, err := s.authority.KeyPEM()
	if err != nil {
		return nil, err
	}
	return identity.LoadAuthority(s.authority.CertificatePEM(), key, func() time.Time { return time.Now().Add(skew) })
}

var keyName = regexp.MustCompile(`\{k(\d+)\}`)

// withFingerprints replaces {k1} by the fingerprint of that key.
func withFingerprints(text string) string {
	return keyName.ReplaceAllStringFunc(text, func(name string) string {
		n, _ := strconv.Atoi(keyName.FindStringSubmatch(name)[1])
		return membership.Fingerprint(membership.TestKey(n))
	})
}

// changeKeys does what an operator does through one member.
func (c *cluster) changeKeys(a args) error {
	operation, number, fails := membership.KeyOperation(a[0]), a.Int(1), a[3]
	argument := membership.Fingerprint(membership.TestKey(number))
	if operation == membership.InstallKey {
		argument = hex.EncodeToString(membership.TestKey(number))
	}
	return c.Each(a[2], func(p *process) error {
		results, err := p.Node.Keys(context.Background(), operation, argument)
		switch {
		case fails == "" && err != nil:
			return fmt.Errorf("%w: %v", err, results)
		case fails != "" && (err == nil || !strings.Contains(err.Error(), withFingerprints(fails))):
			return fmt.Errorf("it says: %v", err)
		case err == nil && operation == membership.UseKey:
			c.security.key = number
		}
		return nil
	})
}

func (c *cluster) installByHand(a args) error {
	key := membership.TestKey(a.Int(0))
	return c.Each(a[1], func(p *process) error {
		return errors.Join(p.State.keyring.Install(key), p.State.keyring.Use(membership.Fingerprint(key)))
	})
}

func (c *cluster) expectKeys(a args) error {
	want := strings.Split(withFingerprints("{"+strings.ReplaceAll(a[1], ", ", "}, {")+"}"), ", ")
	return c.Each(a[0], func(p *process) error {
		if got := p.State.keyring.Fingerprints(); !slices.Equal(got, want) {
			return fmt.Errorf("%s has the keys %v, want %v", p.Name, got, want)
		}
		return nil
	})
}
