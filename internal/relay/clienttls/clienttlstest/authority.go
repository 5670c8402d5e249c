package clienttlstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  crypto.Signer
}

// Certificate describes a certificate. Its names are also in the common name if Common is
// empty and there are no others.
type Certificate struct {
	DNS    []string
	IP     []net.IP
	URI    string
	URIs   []string // more of them
	Common string
	// For is how long the certificate is valid from now on. Default: an hour. If it is negative,
	// the certificate ended that long ago.
	For time.Duration
	// Uses are the extended key usages. Default: server and client.
	Uses []x509.ExtKeyUsage
	// Key of the certificate. Default: a new one of ECDSA P-256.
	Key crypto.Signer
}

// New returns a new authority.
func New(t testing.TB) *Authority {
	t.Helper()
	return newAuthority(t, nil)
}

// Intermediate returns a new authority below a.
func (a *Authority) Intermediate() *Authority {
	a.t.Helper()
	return newAuthority(a.t, a)
}

// newAuthority returns an authority below another one, or a root.
func newAuthority(t testing.TB, above *Authority) *Authority {
	t.Helper()
	a := &Authority{t: t}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "authority " + serial(t).String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	issuer, key := template, a.key
	if above != nil {
		issuer, key = above.cert, above.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, a.key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Pool returns the trust of a client in this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Raw returns the certificate of the authority as chains have it.
func (a *Authority) Raw() []byte { return a.cert.Raw }

// WriteTo replaces a file with the certificate of the authority, and returns its path.
func (a *Authority) WriteTo(path string) string {
	a.t.Helper()
	Replace(a.t, path, a.PEM())
	return path
}

// Issue returns a certificate and its key in PEM.
func (a *Authority) Issue(c Certificate) (cert, key []byte) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: c.Common}, DNSNames: c.DNS, IPAddresses: c.IP,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: c.Uses,
	}
	if c.For != 0 {
		template.NotAfter = time.Now().Add(c.For)
	}
	if c.Uses == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	if c.URI != "" {
		c.URIs = append([]string{c.URI}, c.URIs...)
	}
	for _, uri := range c.URIs {
		u, err := url.Parse(uri)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	k := c.Key
	if k == nil {
		k = newKey(a.t)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// Pair returns a certificate for use in this process.
func (a *Authority) Pair(c Certificate) tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.Issue(c))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// Files replaces the files prefix.crt and prefix.key, and returns their paths.
func (a *Authority) Files(prefix string, c Certificate) (cert, key string) {
	a.t.Helper()
	certPEM, keyPEM := a.Issue(c)
	Replace(a.t, prefix+".key", keyPEM)
	Replace(a.t, prefix+".crt", certPEM)
	return prefix + ".crt", prefix + ".key"
}

// Replace writes a file as renewals do: to another name, and then renamed.
func Replace(t testing.TB, path string, content []byte) {
	t.Helper()
	next, err := os.CreateTemp(filepath.Dir(path), ".next") // mode 0600
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next.Name(), path); err != nil {
		t.Fatal(err)
	}
}
