package relay

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/settings"
)

// following is whether something applies, or depends on the fleet.
type following string

const (
	followAuto following = "auto"
	followYes  following = "true"
	followNo   following = "false"
)

var followings = settings.Kind[following]{
	Name: "string", Want: "auto, true or false", Values: []string{string(followAuto), string(followYes), string(followNo)},
	Parse: func(text string) (following, error) {
		f := following(strings.TrimSpace(text))
		if f != followAuto && f != followYes && f != followNo {
			return "", errors.New("neither auto nor true nor false")
		}
		return f, nil
	},
	Format: func(f following) string { return string(f) },
}

var planVersions = settings.Kind[uint64]{
	Name: "int", Want: fmt.Sprintf("a whole number, 0 to %d", uint64(routing.MaxPlanVersion)),
	Parse: func(text string) (uint64, error) {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil || n > routing.MaxPlanVersion {
			return 0, errors.New("no version")
		}
		return n, nil
	},
	Format: func(n uint64) string { return strconv.FormatUint(n, 10) },
}

// parseSkips parses --skip-relay: relays by service.
func parseSkips(items []string) (map[string][]string, []settings.Problem) {
	skips := map[string][]string{}
	var problems []settings.Problem
	for _, text := range items {
		service, relay, ok := strings.Cut(text, "=")
		if !ok || relay == "" || affinity.ValidateService(service) != nil {
			problems = append(problems, settings.Problem{Setting: "skip-relay", Value: text, Reason: "not a service and a relay", Allowed: "SERVICE=RELAY"})
			continue
		}
		skips[service] = append(skips[service], relay)
	}
	return skips, problems
}

// attemptTime is how long one attempt may take: a duration, or a percentage of the time of
// the request. Zero means no separate limit.
type attemptTime struct {
	fixed   time.Duration
	percent int
}

// of returns the time for an attempt of a request that may take the given time.
func (a attemptTime) of(request time.Duration) time.Duration {
	if a.percent > 0 {
		return time.Duration(float64(request) * float64(a.percent) / 100)
	}
	return a.fixed
}

// relayCounts reads how many relays serve a service; 0 is the automatic number.
var relayCounts = autoCounts(affinity.LeastPeersPerWorker, math.MaxInt, ": a worker with fewer relays does not survive the loss of one while another restarts")

// primaryCounts reads how many relays a service is forwarded to; 0 is the automatic number.
var primaryCounts = autoCounts(1, 40, "")

const autoCount = "auto"

// autoCounts reads numbers of relays; 0 is the automatic number. Because is added to the error about a
// number outside the limits.
func autoCounts(least, most int, because string) settings.Kind[int] {
	want := fmt.Sprintf("auto, or a whole number of %d or more", least)
	if most < math.MaxInt {
		want = fmt.Sprintf("auto, or a whole number, %d to %d", least, most)
	}
	return settings.Kind[int]{
		Name: "int", Want: want, Pattern: `^\s*(auto|[-+]?[0-9]+)\s*$`,
		Parse: func(text string) (int, error) {
			if text = strings.TrimSpace(text); text == autoCount {
				return 0, nil
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < least || n > most {
				return 0, errors.New("not " + want + because)
			}
			return n, nil
		},
		Format: formatCount,
	}
}

func formatCount(n int) string {
	if n == 0 {
		return autoCount
	}
	return strconv.Itoa(n)
}

var attemptTimes = settings.Kind[attemptTime]{
	Name: "time", Want: "a duration such as 500ms or 10s, or a percentage of request-timeout such as 33%; 0 for no limit",
	Pattern: settings.DurationPattern + `|^\s*[0-9]+%\s*$`,
	Parse: func(text string) (attemptTime, error) {
		text = strings.TrimSpace(text)
		if digits, ok := strings.CutSuffix(text, "%"); ok {
			n, err := strconv.Atoi(digits)
			if err != nil || n < 1 || n > 100 {
				return attemptTime{}, errors.New("not from 1% to 100%")
			}
			return attemptTime{percent: n}, nil
		}
		fixed, err := time.ParseDuration(text)
		if err != nil || fixed < 0 {
			return attemptTime{}, errors.New("neither a duration nor a percentage")
		}
		return attemptTime{fixed: fixed}, nil
	},
	Format: func(a attemptTime) string {
		if a.percent > 0 {
			return strconv.Itoa(a.percent) + "%"
		}
		return a.fixed.String()
	},
}

// proxyNetwork is the rule of --trusted-proxy and --proxy-protocol-from.
var proxyNetwork = settings.Rule[string]{
	Allowed: "networks such as 10.0.0.0/8 or 2001:db8::/32",
	Holds: func(text string) bool {
		network, err := netip.ParsePrefix(text)
		return err == nil && !network.Addr().Is4In6() // addresses are compared as IPv4
	},
}

// parseNetworks parses the networks of a setting with the rule proxyNetwork, which refuses others.
func parseNetworks(items []string) (networks []netip.Prefix, _ []settings.Problem) {
	for _, text := range items {
		if network, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, network.Masked())
		}
	}
	return networks, nil
}

// clientShare is how many requests one client may have in flight: a number, a percentage of the limit
// of a service, or a share of what is free. Zero means no limit.
type clientShare struct {
	n       int
	percent bool
	free    bool // n and percent do not count
}

// of returns the number for this limit of a service.
func (s clientShare) of(maxInFlight int) int {
	switch {
	case s.free:
		return ingress.ShareOfFree
	case !s.percent:
		return s.n
	}
	return max(1, int(int64(maxInFlight)*int64(s.n)/100))
}

var clientShares = settings.Kind[clientShare]{
	Name: "share", Want: "auto, a whole number, or a percentage such as 10%; 0 for no limit",
	Pattern: `^\s*(auto|\+?[0-9]+%?)\s*$`,
	Parse: func(text string) (clientShare, error) {
		if text = strings.TrimSpace(text); text == autoCount {
			return clientShare{free: true}, nil
		}
		digits, percent := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(digits)
		switch {
		case err != nil || n < 0:
			return clientShare{}, errors.New("neither auto nor a number nor a percentage")
		case percent && (n < 1 || n > 100):
			return clientShare{}, errors.New("not from 1% to 100%")
		}
		return clientShare{n: n, percent: percent}, nil
	},
	Format: func(s clientShare) string {
		switch {
		case s.free:
			return autoCount
		case s.percent:
			return strconv.Itoa(s.n) + "%"
		}
		return strconv.Itoa(s.n)
	},
}
