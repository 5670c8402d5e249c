package keyfile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The types of PEM blocks.
const (
	CertificateBlock = "CERTIFICATE"
	KeyBlock         = "PRIVATE KEY"
)

var byteOrderMark = []byte("\ufeff")

// skipByteOrderMark returns a text without the byte-order mark. A binary key may begin with
// the same bytes and is not changed.
func skipByteOrderMark(data []byte) []byte {
	if utf8.Valid(data) {
		return bytes.TrimPrefix(data, byteOrderMark)
	}
	return data
}

// isUTF16 reports whether data are characters of ASCII in UTF-16 with its byte-order mark.
func isUTF16(data []byte) bool {
	high := 1 // the place of the high byte of each character
	switch {
	case len(data) < 4 || len(data)%2 != 0:
		return false
	case data[0] == 0xFE && data[1] == 0xFF:
		high = 0
	case data[0] != 0xFF || data[1] != 0xFE:
		return false
	}
	for i := 2; i < len(data); i += 2 {
		if data[i+high] != 0 {
			return false
		}
	}
	return true
}

// readPEM returns all blocks. [pem.Decode] skips what is not a whole block without an error,
// so that a bundle would lose an authority: a block that is cut short or does not begin its
// line is an error here. Text between the blocks is skipped.
func readPEM(data []byte) ([]*pem.Block, error) {
	const begin, end, dashes = "-----BEGIN ", "-----END ", "-----"
	data = skipByteOrderMark(data)
	begun, ended, number := 0, 0, 0
	for line := range bytes.Lines(data) {
		number++
		text := strings.TrimRight(string(line), " \t\r\n")
		switch at := strings.Index(text, begin); {
		case at == 0:
			begun++
		case at > 0 && strings.HasSuffix(text, dashes): // otherwise a text about blocks
			return nil, fmt.Errorf("line %d has text, a blank or a byte-order mark before %q, which would hide the block: begin the line with it", number, strings.TrimSpace(begin))
		case strings.HasPrefix(text, end) && strings.HasSuffix(text, dashes):
			ended++
		}
	}
	var blocks []*pem.Block
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		blocks = append(blocks, block)
	}
	if marked := max(begun, ended); len(blocks) < marked {
		return nil, fmt.Errorf("%d PEM blocks begin or end but only %d are whole: the file is cut short or damaged", marked, len(blocks))
	}
	return blocks, nil
}

// Certificates reads all certificates of a PEM file, in their order. Text around the
// blocks, a byte-order mark and blocks of other types are skipped. What looks like a
// certificate and cannot be read is an error, because the bundle would be incomplete.
func Certificates(data []byte) ([]*x509.Certificate, error) {
	blocks, err := readPEM(data)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	var kinds []string
	for _, block := range blocks {
		switch {
		case block.Type == CertificateBlock:
		case strings.HasSuffix(block.Type, CertificateBlock):
			return nil, fmt.Errorf("a block is a %s: convert it with openssl x509 -in FILE -out NEW", block.Type)
		default:
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
	case len(certs) == 0 && len(kinds) > 0:
		return nil, fmt.Errorf("no certificate in it, only %q", kinds)
	case len(certs) == 0:
		return nil, errors.New("no PEM block in it; a certificate begins with -----BEGIN CERTIFICATE-----")
	}
	return certs, nil
}

// Pair reads a certificate, its intermediates and its key, each in PEM, and returns the chain as
// well. If the certificate of the key is not the first, the chain is sorted: some authorities
// deliver it in reverse order. The error lists the problems of both files.
func Pair(certificate, key []byte) (tls.Certificate, []*x509.Certificate, error) {
	certs, err := Certificates(certificate)
	if err != nil {
		err = fmt.Errorf("certificate: %w", err)
	}
	block, keyErr := parseKey(key)
	if keyErr != nil {
		keyErr = fmt.Errorf("key: %w", keyErr)
	}
	if err := errors.Join(err, keyErr); err != nil {
		return tls.Certificate{}, nil, err
	}
	encoded := pem.EncodeToMemory(block)
	for i := range certs {
		chain := sortChain(certs, i)
		pair, pairErr := tls.X509KeyPair(encodeChain(chain), encoded)
		if pairErr == nil {
			return pair, chain, nil
		}
		if i == 0 {
			err = pairErr
		}
	}
	return tls.Certificate{}, nil, fmt.Errorf("certificate and key cannot be used together (half written, or one of them is old): %w", err)
}

// parseKey returns the first private key of a file.
func parseKey(data []byte) (*pem.Block, error) {
	blocks, err := readPEM(data)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, block := range blocks {
		if !strings.HasSuffix(block.Type, KeyBlock) {
			kinds = append(kinds, block.Type)
			continue
		}
		if strings.HasPrefix(block.Type, "ENCRYPTED") || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return nil, errors.New("it has a passphrase, which a process cannot enter: remove the passphrase with openssl pkey -in KEY -out NEW, and chmod 600 NEW")
		}
		return block, nil
	}
	if len(kinds) > 0 {
		return nil, fmt.Errorf("no private key in it, only %q", kinds)
	}
	return nil, errors.New("no PEM block in it; a key begins with -----BEGIN PRIVATE KEY-----")
}

// sortChain returns the certificates with the one at an index first. If that moves it, each
// is followed by its issuer, and those that issued none come last. The order of a file that
// begins with the certificate of its key is kept.
func sortChain(certs []*x509.Certificate, first int) []*x509.Certificate {
	if first == 0 {
		return certs
	}
	chain := []*x509.Certificate{certs[first]}
	rest := slices.Delete(slices.Clone(certs), first, first+1)
	for len(rest) > 0 {
		last := chain[len(chain)-1]
		next := slices.IndexFunc(rest, func(c *x509.Certificate) bool { return last.CheckSignatureFrom(c) == nil })
		if next < 0 {
			break
		}
		chain = append(chain, rest[next])
		rest = slices.Delete(rest, next, next+1)
	}
	return append(chain, rest...)
}

func encodeChain(chain []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range chain {
		_ = pem.Encode(&out, &pem.Block{Type: CertificateBlock, Bytes: c.Raw}) // a Buffer takes everything
	}
	return out.Bytes()
}
