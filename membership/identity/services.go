package identity

import (
	"fmt"
	"slices"
	"strings"
)

// The services that the holder of a certificate may offer are in its names ringway://service/NAME.
// Each NAME is the name of a service, a prefix and '*' for every name that begins with it (api-*
// allows api-v1 and "api-"), or '*' alone for every service.
//
// Their value is the sorted list as one text, separated by commas, so that Claims stay comparable.
// It is empty for a certificate without such names, which states nothing about services: whether
// its holder may offer any is for the caller to decide.

// maxServiceNames limits the names of one certificate, which travels in gossip. A worker with
// more services needs a prefix.
const maxServiceNames = 32

// serviceNameRule is the rule of ParseServiceNames as text.
const serviceNameRule = "the name of a service, a prefix of names and '*', or '*' for all"

// ParseServiceNames checks and sorts names, and returns them as one text, separated by commas;
// repeated ones count once. Without names the text is empty.
func ParseServiceNames(names ...string) (string, error) {
	for _, name := range names {
		if err := checkServiceName(name); err != nil {
			return "", err
		}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > maxServiceNames {
		return "", fmt.Errorf("%d names of services, at most %d are allowed: use prefixes such as api-*", len(names), maxServiceNames)
	}
	return strings.Join(names, ","), nil
}

// checkServiceName checks one name. Services begin with a letter or a digit.
func checkServiceName(name string) error {
	prefix, wildcard := strings.CutSuffix(name, "*")
	if wildcard && prefix == "" {
		return nil
	}
	if CheckName(prefix) != nil || strings.IndexByte("._-", prefix[0]) >= 0 {
		return fmt.Errorf("%.80q: allowed are %s", name, serviceNameRule)
	}
	return nil
}

// serviceNamesOf reverses ParseServiceNames.
func serviceNamesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// CheckServiceName returns an error if these names are not empty and do not include a service.
func CheckServiceName(service, names string) error {
	if names == "" || allows(names, service) {
		return nil
	}
	return fmt.Errorf("service %s: the certificate of its worker is for %.200s: issue it with --service %s, if the worker should offer that", service, names, service)
}

// allows reports whether the names include a service. It is false without names.
func allows(names, service string) bool {
	for name := range strings.SplitSeq(names, ",") {
		if prefix, wildcard := strings.CutSuffix(name, "*"); wildcard && strings.HasPrefix(service, prefix) || name == service && name != "" {
			return true
		}
	}
	return false
}
