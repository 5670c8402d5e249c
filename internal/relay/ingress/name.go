package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// The headers between clients, relays and workers. Clients can set ServiceHeader,
// KeyHeader and TimeoutHeader, trusted proxies CallerHeader too: the rest is dropped at
// the edge.
const (
	// ServiceHeader names the service that a request is for.
	ServiceHeader = "Ringway-Service"
	// KeyHeader is what strategies that go by a key hold together: all requests with
	// one key go to one worker. Config.Keys may name other places for clients to have
	// it. It is passed on to other relays and not to workers.
	KeyHeader = "Ringway-Key"
	// TimeoutHeader is how long the sender of a request waits for the answer to begin, in
	// milliseconds. Relays and sidecars pass on what is left of it, to the service too.
	TimeoutHeader = "Ringway-Timeout"
	// CallerHeader names who sends a request, for the circuits.
	CallerHeader = "Ringway-Caller"
	// HopHeader carries the id of the relay that forwarded a request.
	HopHeader = "Ringway-Hop"
	// ExposeHeader is on a forwarded request whose answer may say where it went.
	ExposeHeader = "Ringway-Expose"
	// RelayHeader, EndpointHeader and AttemptsHeader are on answers when they are
	// asked for.
	RelayHeader    = "Ringway-Relay"
	EndpointHeader = "Ringway-Endpoint"
	AttemptsHeader = "Ringway-Attempts"
)

// Route sends requests for a host, a path, or both, to a service.
type Route struct {
	// Host matches the request's host without its port; empty matches any.
	Host string `yaml:"host"`
	// PathPrefix matches the beginning of the path; empty matches any.
	PathPrefix string `yaml:"path_prefix"`
	// Service is where the request goes.
	Service string `yaml:"service"`
}

// namer finds the service of a request: header, then host label, then routes.
type namer struct {
	suffix string // "." + domain; empty when host names say nothing
	routes []Route
}

func (n namer) service(r *http.Request) string {
	if name := r.Header.Get(ServiceHeader); name != "" {
		return name
	}
	if n.suffix == "" && len(n.routes) == 0 {
		return ""
	}
	host := strings.ToLower(hostOnly(r.Host))
	if n.suffix != "" {
		if label, ok := strings.CutSuffix(host, n.suffix); ok && label != "" {
			first, _, _ := strings.Cut(label, ".")
			return first
		}
	}
	for _, route := range n.routes {
		if (route.Host == "" || strings.EqualFold(route.Host, host)) && strings.HasPrefix(r.URL.Path, route.PathPrefix) {
			return route.Service
		}
	}
	return ""
}

// hostOnly cuts the port off, and the brackets of an IPv6 address.
func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1] // nothing but the one pair: others read the same host
	}
	return host
}

// CheckRoutes reports every route that cannot match or leads nowhere.
func CheckRoutes(routes []Route) error {
	var errs []error
	for i, r := range routes {
		if err := affinity.ValidateService(r.Service); err != nil {
			errs = append(errs, fmt.Errorf("route %d: %w", i+1, err))
		}
		if r.Host == "" && r.PathPrefix == "" {
			errs = append(errs, fmt.Errorf("route %d (to %q) has neither host nor path_prefix: give at least one", i+1, r.Service))
		}
		if r.PathPrefix != "" && !strings.HasPrefix(r.PathPrefix, "/") {
			errs = append(errs, fmt.Errorf("route %d: path_prefix %q does not begin with /", i+1, r.PathPrefix))
		}
	}
	return errors.Join(errs...)
}
