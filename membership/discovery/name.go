package discovery

import (
	"errors"
	"fmt"
	"strings"
)

// checkName returns the name in lower case. It takes what host names are made of,
// and '_' for SRV names; a trailing dot (no search list) stays.
func checkName(name string) (string, error) {
	bare := strings.TrimSuffix(name, ".")
	if bare == "" {
		return "", errors.New("the host name is empty")
	}
	if len(bare) > 253 {
		return "", fmt.Errorf("the host name has %d characters; at most 253 are allowed", len(bare))
	}
	labels := strings.Split(bare, ".")
	for _, label := range labels {
		switch {
		case label == "":
			return "", errors.New("the host name has an empty label")
		case len(label) > 63:
			return "", fmt.Errorf("the label %q has %d characters; at most 63 are allowed", label, len(label))
		case label[0] == '-' || label[len(label)-1] == '-':
			return "", fmt.Errorf("the label %q begins or ends with '-'", label)
		}
		for _, c := range []byte(label) {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !letter && !('0' <= c && c <= '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("%q is not allowed in a host name", c)
			}
		}
	}
	// No top-level domain is a number (RFC 3696), so this is a mistyped IP.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return "", errors.New("neither an IP address nor a host name")
	}
	return strings.ToLower(name), nil
}

// checkServiceName takes _service._proto.name, as RFC 2782 writes it.
func checkServiceName(name string) (string, error) {
	name, err := checkName(name)
	if err != nil {
		return "", err
	}
	labels := strings.SplitN(name, ".", 3)
	if len(labels) < 3 || labels[2] == "" || len(labels[0]) < 2 || labels[0][0] != '_' || labels[1] != "_udp" && labels[1] != "_tcp" {
		return "", errors.New("an SRV name is written _gossip._udp.name")
	}
	return name, nil
}

// defaultInternalSuffixes end names that are expected to have private addresses
// (HS-C9), with the two that RFC 8375 and RFC 6761 reserve.
var defaultInternalSuffixes = []string{
	".local", ".internal", ".svc", ".cluster.local", ".corp", ".home", ".lan", ".private", ".test",
	".home.arpa", ".localhost",
}

// isInternal says whether private addresses are expected for the name. A name
// without a dot can only come from a local source.
func isInternal(name string, suffixes []string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !strings.Contains(name, ".") {
		return true
	}
	for _, suffix := range suffixes {
		if strings.HasSuffix(name, "."+strings.Trim(strings.ToLower(suffix), ".")) {
			return true
		}
	}
	return false
}
