package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/ringway/ringway/internal/keyfile"
)

const (
	// maxSerial is 20 bytes in hex: RFC 5280, section 4.1.2.2.
	maxSerial = 40
	// maxProblems is how many problems of a deny list are listed; the others are counted.
	maxProblems = 20
)

// denyList holds certificates that are refused although one of our authorities issued them.
// The zero list denies none.
type denyList struct {
	serials, nodes map[string]bool
}

// parseDenyList reads lines `serial HEX` and `node ID`; `#` begins a comment. The error
// lists all problems with their lines: a mistyped entry must not silently leave a
// certificate accepted.
func parseDenyList(data []byte) (denyList, error) {
	list := denyList{serials: map[string]bool{}, nodes: map[string]bool{}}
	var errs []error
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text, _, _ := strings.Cut(string(line), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		if err := list.add(fields); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", number, err))
		}
	}
	if more := len(errs) - maxProblems; more > 0 {
		errs = append(errs[:maxProblems], fmt.Errorf("and %d lines more", more))
	}
	return list, errors.Join(errs...)
}

func (l denyList) add(fields []string) error {
	switch kind := fields[0]; {
	case kind != "serial" && kind != "node":
		return fmt.Errorf("%.80q: allowed are `serial HEX` and `node ID`", kind)
	case len(fields) != 2:
		return fmt.Errorf("%s with %d values: allowed is one on each line", kind, len(fields)-1)
	case kind == "node":
		if err := CheckName(fields[1]); err != nil {
			return fmt.Errorf("node %w", err)
		}
		l.nodes[fields[1]] = true
	default:
		hex := strings.ToLower(fields[1])
		if len(hex) > maxSerial || strings.Trim(hex, "0123456789abcdef") != "" {
			return fmt.Errorf("serial %.80q: allowed are 1 to %d hexadecimal digits, without colons, as `tls info` shows them", fields[1], maxSerial)
		}
		l.serials[trimSerial(hex)] = true
	}
	return nil
}

// trimSerial removes leading zeros: OpenSSL writes them, big.Int does not.
func trimSerial(hex string) string {
	if trimmed := strings.TrimLeft(hex, "0"); trimmed != "" {
		return trimmed
	}
	return "0"
}

// CheckDenyFile reports all problems of a deny list, as NewSource would.
func CheckDenyFile(path string) error {
	_, _, err := (Files{Denied: path}).readDenyList()
	return err
}

// readDenyList reads the list, with its hash to detect changes. Without a path the list is empty.
func (f Files) readDenyList() (list denyList, hash [sha256.Size]byte, err error) {
	if f.Denied == "" {
		return list, hash, nil
	}
	data, err := keyfile.Read(f.Denied)
	if err != nil {
		return list, hash, fmt.Errorf("load the deny list: %w", err)
	}
	if list, err = parseDenyList(data); err != nil {
		return list, hash, fmt.Errorf("load the deny list from %s: %w", f.Denied, err)
	}
	return list, sha256.Sum256(data), nil
}

func (l denyList) size() int { return len(l.serials) + len(l.nodes) }

// refuseDenied refuses a certificate whose serial number or node is on the list.
func (m *material) refuseDenied(cert *x509.Certificate) error {
	if m.denyList.size() == 0 {
		return nil
	}
	claims, _ := m.template.claims(cert) // without claims, only the serial number can match
	refuse := func(what string) error {
		return &RefusalError{Field: reasonDenied, Node: claims.Node,
			Cause: fmt.Errorf("%s is on the deny list; remove it there, or make a new certificate", what)}
	}
	serial := cert.SerialNumber.Text(16)
	switch {
	case m.serials[serial]:
		return refuse("serial " + serial)
	case claims.Node != "" && m.nodes[claims.Node]:
		return refuse("node " + claims.Node)
	}
	return nil
}
