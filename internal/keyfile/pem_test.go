package keyfile

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

func TestNoAuthorityOfABundleIsDroppedSilently(t *testing.T) {
	one, two := issue(t, "one", nil).pem(), issue(t, "two", nil).pem()
	trusted := strings.ReplaceAll(two, "CERTIFICATE", "TRUSTED CERTIFICATE")
	for name, test := range map[string]struct {
		bundle string
		want   string // of the error; empty: both are read
	}{
		"both":                            {one + two, ""},
		"a byte-order mark":               {"\ufeff" + one + two, ""},
		"line ends of Windows":            {"\ufeff" + strings.ReplaceAll(one+two, "\n", "\r\n"), ""},
		"comments":                        {"# one\n=====\n" + one + "\nCertificate:\n    Data:\n        Version: 3 (0x2)\n" + two + "end\n", ""},
		"text about blocks":               {"# each has a \"-----BEGIN CERTIFICATE-----\" line\n" + one + two, ""},
		"blanks behind a line":            {strings.ReplaceAll(one, "-----\n", "----- \n") + two, ""},
		"a blank before the first":        {" " + one + two, "line 1 has text, a blank or a byte-order mark before"},
		"a blank before the second":       {one + "\t" + two, "has text, a blank or a byte-order mark before"},
		"text before the first":           {"first: " + one + two, "line 1 has text, a blank or a byte-order mark before"},
		"no line end after the first":     {strings.TrimSpace(one) + two, "has text, a blank or a byte-order mark before"},
		"the begin is damaged":            {one + "----BEGIN" + strings.TrimPrefix(two, "-----BEGIN"), "only 1 are whole"},
		"the end is damaged":              {one + strings.Replace(two, "-----END", "----END", 1), "only 1 are whole"},
		"certificates with trust data":    {one + trusted, "TRUSTED CERTIFICATE"},
		"a mark between, as after cat":    {one + "\ufeff" + two, "has text, a blank or a byte-order mark before"},
		"line ends of old Macs":           {one + strings.ReplaceAll(two, "\n", "\r"), "only 1 are whole"},
		"a mark, and text in Latin-1":     {"\ufeff" + one + "# caf\xe9\n" + two, "line 1 has text, a blank or a byte-order mark before"},
		"a block of another type as well": {one + strings.ReplaceAll(two, "CERTIFICATE", "X509 CRL") + two, ""},
	} {
		t.Run(name, func(t *testing.T) {
			certs, err := Certificates([]byte(test.bundle))
			if test.want == "" && (err != nil || len(certs) != 2) {
				t.Errorf("%d of 2 certificates, %v", len(certs), err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%d certificates, error %v, want %q in it", len(certs), err, test.want)
			}
		})
	}
}

func TestAFileIsReadWithoutItsByteOrderMark(t *testing.T) {
	wide := []byte{0xFF, 0xFE}
	for _, unit := range utf16.Encode([]rune("key\n")) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	binary := "\ufeff\x80key"
	for name, test := range map[string]struct{ content, want, err string }{
		"a mark":             {"\ufeffkey\n", "key\n", ""},
		"no mark":            {"key\n", "key\n", ""},
		"binary":             {binary, binary, ""},
		"UTF-16":             {string(wide), "", "save it in UTF-8"},
		"binary like UTF-16": {"\xff\xfe\x00\x01", "\xff\xfe\x00\x01", ""},
	} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(file)
		if string(got) != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// link is a certificate of a chain, and its key.
type link struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

func (l link) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: CertificateBlock, Bytes: l.cert.Raw}))
}

// issue makes a certificate below issuer; nil: an authority of its own.
func issue(t *testing.T, name string, issuer *link) link {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: name != "leaf", BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if issuer == nil {
		issuer = &link{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, public, issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return link{cert, key}
}

func TestAChainInAnyOrderIsServedFromItsLeafUp(t *testing.T) {
	root := issue(t, "root", nil)
	upper := issue(t, "upper", &root)
	lower := issue(t, "lower", &upper)
	leaf := issue(t, "leaf", &lower)
	der, err := x509.MarshalPKCS8PrivateKey(leaf.key)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: KeyBlock, Bytes: der})
	for name, test := range map[string]struct {
		file []link
		want string
	}{
		"in order":                      {[]link{leaf, lower, upper}, "leaf lower upper"},
		"reversed":                      {[]link{root, upper, lower, leaf}, "leaf lower upper root"},
		"mixed":                         {[]link{upper, leaf, root, lower}, "leaf lower upper root"},
		"the leaf first stays as it is": {[]link{leaf, upper, lower}, "leaf upper lower"},
	} {
		var file string
		for _, l := range test.file {
			file += l.pem()
		}
		pair, _, err := Pair([]byte(file), key)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, der := range pair.Certificate {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, c.Subject.CommonName)
		}
		if strings.Join(got, " ") != test.want || pair.Leaf.Subject.CommonName != "leaf" {
			t.Errorf("%s: served %q, want %q", name, got, test.want)
		}
	}
	encrypted := strings.ReplaceAll(string(key), "PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
	old := strings.Replace(string(key), "PRIVATE KEY-----\n", "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1)
	for want, test := range map[string]struct{ cert, key string }{
		"has a passphrase":         {leaf.pem(), encrypted},
		"openssl pkey":             {leaf.pem(), old},
		"half written":             {lower.pem() + upper.pem(), string(key)},
		"no private key in it":     {leaf.pem(), leaf.pem()},
		"only 0 are whole":         {leaf.pem(), string(key[:60])},
		"before \"-----BEGIN\"":    {leaf.pem(), " " + string(key)},
		"begins with -----BEGIN P": {leaf.pem(), "secret"},
	} {
		if _, _, err := Pair([]byte(test.cert), []byte(test.key)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if _, _, err := Pair([]byte("\ufeff"+leaf.pem()), []byte("\ufeff"+string(key))); err != nil {
		t.Errorf("with byte-order marks: %v", err)
	}
}
