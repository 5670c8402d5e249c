package relay

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/settings"
)

// proxyNetwork is the rule of a setting.
var proxyNetwork = settings.Rule[string]{
	Allowed: "networks such as 10.0.0.0/8 or 2001:db8::/32",
	Holds: func(text string) bool {
		network, err := netip.ParsePrefix(text)
		return err == nil && !network.Addr().Is4In6() // addresses are compared as IPv4
	},
}

// networks returns the networks of a checked setting.
func networks(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if network, err := netip.ParsePrefix(text); err == nil { // the rule has refused others
			out = append(out, network.Masked())
		}
	}
	return out
}

// clientShare is how many requests of a service one client may have in flight: a number,
// or a percentage of the service's limit. Zero means no limit.
type clientShare struct {
	n       int
	percent bool
}

// of returns the number for this limit of a service.
func (s clientShare) of(maxInFlight int) int {
	if !s.percent {
		return s.n
	}
	return max(1, int(int64(maxInFlight)*int64(s.n)/100))
}

var clientShares = settings.Kind[clientShare]{
	Name: "share", Want: "a whole number, or a percentage such as 10%; 0 for no limit",
	Parse: func(text string) (clientShare, error) {
		digits, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
		n, err := strconv.Atoi(digits)
		switch {
		case err != nil || n < 0:
			return clientShare{}, errors.New("neither a number nor a percentage")
		case percent && (n < 1 || n > 100):
			return clientShare{}, errors.New("not from 1% to 100%")
		}
		return clientShare{n, percent}, nil
	},
	Format: func(s clientShare) string {
		if s.percent {
			return strconv.Itoa(s.n) + "%"
		}
		return strconv.Itoa(s.n)
	},
}
