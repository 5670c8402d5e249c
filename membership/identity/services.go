package identity

import (
	"fmt"
	"slices"
	"strings"
)

// ServiceNames are the services that the holder of a certificate may offer, from its names
// ringway://service/NAME. Each NAME is the name of a service, a prefix and '*' for every name
// that begins with it (api-* allows api-v1 and "api-"), or '*' alone for every service.
//
// The value is the sorted list, separated by commas, so that Claims stay comparable. The zero
// value is that of a certificate without such names, which says nothing about services: whether
// its holder may offer any is for the caller to decide.
type ServiceNames string

// maxServiceNames limits the names of one certificate, which travels in gossip. A worker with
// more services needs a prefix.
const maxServiceNames = 32

// serviceNameRule is the rule of ParseServiceNames as text.
const serviceNameRule = "the name of a service, a prefix of names and '*', or '*' for all"

// ParseServiceNames checks and sorts the names; repeated ones count once. Without names it
// returns the zero value.
func ParseServiceNames(names ...string) (ServiceNames, error) {
	for _, name := range names {
		if err := checkServiceName(name); err != nil {
			return "", err
		}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > maxServiceNames {
		return "", fmt.Errorf("%d names of services, at most %d are allowed: use prefixes such as api-*", len(names), maxServiceNames)
	}
	return ServiceNames(strings.Join(names, ",")), nil
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

// list returns the names, sorted; nil for the zero value.
func (n ServiceNames) list() []string {
	if n == "" {
		return nil
	}
	return strings.Split(string(n), ",")
}

// Allow reports whether the names include a service. It is false for the zero value.
func (n ServiceNames) Allow(service string) bool {
	for name := range strings.SplitSeq(string(n), ",") {
		if prefix, wildcard := strings.CutSuffix(name, "*"); wildcard && strings.HasPrefix(service, prefix) || name == service && name != "" {
			return true
		}
	}
	return false
}
