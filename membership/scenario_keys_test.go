package membership

import (
	"context"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// certificateLife outlasts every history.
const certificateLife = 30 * 24 * time.Hour

// security is what a history's fleet is secured with. The zero value is nothing.
type security struct {
	key       int // the number of the key that a new member is given; 0 is none
	authority *identity.Authority
}

// arm gives a process its keys and a certificate that says what its configuration
// says.
func (s *security) arm(p *process, cfg *Config) (err error) {
	if s.key > 0 {
		if p.keyring == nil {
			if p.keyring, err = NewKeyring(testKey(s.key)); err != nil {
				return err
			}
		}
		cfg.Keyring = p.keyring
	}
	if s.authority != nil {
		cfg.Identity, err = s.certificate(claimsOf(cfg))
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

func claimsOf(cfg *Config) identity.Claims {
	return identity.Claims{Role: cfg.Role, Cluster: cfg.Cluster, Environment: cfg.Environment, Datacenter: cfg.Datacenter, Node: cfg.ID}
}

func makeSecure(m []string) (step, error) {
	return func(c *cluster) (err error) {
		c.security.key = 1
		if m[0] != "" {
			// It began long ago, so that it can have issued what ended long ago.
			c.security.authority, err = identity.NewAuthority(identity.AuthorityConfig{
				Validity: 10 * certificateLife, Now: func() time.Time { return time.Now().Add(-certificateLife) },
			})
		}
		return err
	}, nil
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
		return Fingerprint(testKey(n))
	})
}

// makeKeys does what an operator does through one member.
func makeKeys(m []string) (step, error) {
	operation, number, fails := KeyOperation(m[0]), 0, m[3]
	number, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, err
	}
	argument := Fingerprint(testKey(number))
	if operation == InstallKey {
		argument = hex.EncodeToString(testKey(number))
	}
	return func(c *cluster) error {
		return names(m[2]).each(c, func(p *process) error {
			results, err := p.node.Keys(context.Background(), operation, argument)
			switch {
			case fails == "" && err != nil:
				return fmt.Errorf("%w: %v", err, results)
			case fails != "" && (err == nil || !strings.Contains(err.Error(), withFingerprints(fails))):
				return fmt.Errorf("it says: %v", err)
			case err == nil && operation == UseKey:
				c.security.key = number
			}
			return nil
		})
	}, nil
}

func makeInstallByHand(m []string) (step, error) {
	number, err := strconv.Atoi(m[0])
	if err != nil {
		return nil, err
	}
	return func(c *cluster) error {
		return names(m[1]).each(c, func(p *process) error {
			if err := p.keyring.Install(testKey(number)); err != nil {
				return err
			}
			return p.keyring.Use(Fingerprint(testKey(number)))
		})
	}, nil
}

func expectKeys(m []string) (check, error) {
	var want []string
	for item := range strings.SplitSeq(m[1], ", ") {
		want = append(want, withFingerprints("{"+item+"}"))
	}
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			if got := p.keyring.Fingerprints(); !slices.Equal(got, want) {
				return fmt.Errorf("%s has the keys %v, want %v", p.name, got, want)
			}
			return nil
		})
	}, nil
}
