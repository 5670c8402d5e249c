package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// The types of PEM blocks.
const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// ParseCertificates reads all certificates of a PEM file, in their order. Text
// around the blocks and blocks of other types are skipped; a block cut short or
// a certificate that cannot be read is an error, because what is left of a
// bundle is not the bundle.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	var kinds []string
	begun := countBegins(data)
	blocks := 0
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		blocks++
		if block.Type != pemCertificate {
			kinds = append(kinds, block.Type)
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the file cannot be read: %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	switch {
	case blocks < begun:
		return nil, fmt.Errorf("%d PEM blocks begin but only %d are whole: the file is cut short or damaged", begun, blocks)
	case len(certs) == 0 && len(kinds) > 0:
		return nil, fmt.Errorf("no certificate in it, only %q", kinds)
	case len(certs) == 0:
		return nil, errors.New("no PEM block in it; a certificate begins with -----BEGIN CERTIFICATE-----")
	}
	return certs, nil
}

// countBegins counts the lines that begin a PEM block.
func countBegins(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			n++
		}
	}
	return n
}
