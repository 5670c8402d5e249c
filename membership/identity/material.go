package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
)

// Files are the paths of the files with which a process proves its identity.
type Files struct {
	// Certificate is a PEM file: our certificate, then intermediates if any.
	Certificate string
	// Key is the PEM file with its private key.
	Key string
	// Authorities is a PEM bundle of trusted authorities. To replace an authority, first add the
	// new one on all members, then renew the certificates, then remove the old one.
	Authorities string
	// Denied is a text file of certificates that are not accepted any more, one entry per line:
	// `serial HEX` or `node ID`. Empty: none.
	Denied string
}

// PEM holds the content of [Files].
type PEM struct {
	Certificate, Key, Authorities []byte
	// Denied is the deny list, which is not in PEM format.
	Denied []byte
}

// read returns the content of the files except the deny list, which is read separately so
// that one broken file does not delay the other. The error lists all problems.
func (f Files) read() (PEM, error) {
	var p PEM
	var errs []error
	for _, one := range []struct {
		what, path string
		data       *[]byte
	}{
		{"certificate", f.Certificate, &p.Certificate},
		{"key", f.Key, &p.Key},
		{"authorities", f.Authorities, &p.Authorities},
	} {
		var err error
		if *one.data, err = keyfile.Read(one.path); err != nil {
			errs = append(errs, fmt.Errorf("%s file: %w", one.what, err))
		}
	}
	return p, errors.Join(errs...)
}

// hash identifies the content of the certificate files.
func (p PEM) hash() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{p.Certificate, p.Key, p.Authorities} {
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// material is one consistent set of everything that a handshake needs. It is never changed
// after it is published.
type material struct {
	hash   [sha256.Size]byte
	pair   tls.Certificate
	roots  *x509.CertPool
	claims Claims
	// template is where certificates have their claims; it never changes.
	template *template
	// authority is the certificate above ours that expires first.
	authority *x509.Certificate
	denyList
	// trusted and listed are the hashes of the authorities and of the deny list.
	trusted, listed [sha256.Size]byte
	// trusts grows with each change of authorities or deny list: a connection that was checked
	// under the same number need not be checked again.
	trusts uint64
	// replaced is closed when another set replaces this one.
	replaced chan struct{}
}

// parse builds a set from the contents of three files, or returns all problems. Our own
// certificate is checked like the other members will check it, so that a mistake is found
// here and not by their refusal.
func (p PEM) parse(now time.Time, t *template) (*material, error) {
	var errs []error
	m := &material{hash: p.hash(), template: t, roots: x509.NewCertPool(), trusted: sha256.Sum256(p.Authorities), replaced: make(chan struct{})}
	authorities, err := keyfile.Certificates(p.Authorities)
	if err != nil {
		errs = append(errs, fmt.Errorf("authorities: %w", err))
	}
	usable := 0
	for _, c := range authorities {
		if c.IsCA {
			m.roots.AddCert(c)
			usable++
		}
	}
	if err == nil && usable == 0 {
		errs = append(errs, errors.New("authorities: no authority in it: a certificate that may sign others (IsCA) is needed"))
	}
	var chain []*x509.Certificate
	if m.pair, chain, err = keyfile.Pair(p.Certificate, p.Key); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if m.claims, err = t.claims(chain[0]); err != nil {
		errs = append(errs, fmt.Errorf("certificate: %w", err))
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		// A client needs no certificate for the server side.
		if use == x509.ExtKeyUsageServerAuth && m.claims.Role == RoleClient {
			continue
		}
		if _, err := (trust{material: m, now: now}).check(chain, use); err != nil {
			errs = append(errs, fmt.Errorf("certificate: other members would refuse it: %w", err))
			break
		}
	}
	if m.claims.Role.Member() { // other members must be able to verify its signatures
		if err := signingKey(chain[0].PublicKey); err != nil {
			errs = append(errs, fmt.Errorf("certificate: %w", err))
		}
		if _, err := parseChain(m.pair.Certificate); err != nil {
			errs = append(errs, fmt.Errorf("certificate: %w", err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	m.authority = m.lastingAuthority(chain, now)
	return m, nil
}

// lastingAuthority returns, of the chain from our certificate to an authority that is valid
// longest, the certificate above ours that expires first: after that no member accepts our
// certificate, however long it is valid itself. Other authorities of the bundle do not
// matter: during a rotation an old one may expire at any time.
func (m *material) lastingAuthority(chain []*x509.Certificate, now time.Time) *x509.Certificate {
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	chains, _ := chain[0].Verify(x509.VerifyOptions{ // check has already verified that there is one
		Roots: m.roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return lasting(chains)
}
