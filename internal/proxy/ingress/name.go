package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/wire"
)

// Route maps requests for a host, a path, or both, to a service.
type Route struct {
	// Host matches the request's host without its port; empty matches any.
	Host string `yaml:"host"`
	// PathPrefix matches the beginning of the path; empty matches any.
	PathPrefix string `yaml:"path_prefix"`
	// Service is the service of these requests.
	Service string `yaml:"service"`
}

// WholeHost is the domain with which a host without a dot names the service.
const WholeHost = "."

// namer finds the service of a request: header, then host label, then routes.
type namer struct {
	suffix string // "." + domain; empty if host names are not used
	whole  bool   // a host without a dot names the service, as in the targets of gRPC clients
	routes []Route
}

// service returns the name of the service of a request, empty if it names none.
func (h *Handler) service(r *http.Request) string {
	if l := h.localOf(r); l != nil {
		return l.Service
	}
	return h.namer.service(r)
}

func (n namer) service(r *http.Request) string {
	if name := r.Header.Get(wire.ServiceHeader); name != "" {
		return name
	}
	if n.suffix == "" && !n.whole && len(n.routes) == 0 {
		return ""
	}
	host := hostName(r.Host)
	if n.whole && host != "" && !strings.ContainsAny(host, ".:") {
		return host
	}
	if n.suffix != "" {
		if label, ok := strings.CutSuffix(host, n.suffix); ok && label != "" {
			first, _, _ := strings.Cut(label, ".")
			return first
		}
	}
	for _, route := range n.routes {
		if (route.Host == "" || hostName(route.Host) == host) && strings.HasPrefix(r.URL.Path, route.PathPrefix) {
			return route.Service
		}
	}
	return ""
}

// hostName returns the form in which hosts are compared: without a port, in lower case, and without
// the dot behind which DNS adds no domain (RFC 3986 §3.2.2).
func hostName(host string) string { return strings.TrimSuffix(strings.ToLower(hostOnly(host)), ".") }

// hostOnly removes the port and the brackets of an IPv6 address.
func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1] // only one pair of brackets, so that all components read the same host
	}
	return host
}

// CheckRoutes reports every route that cannot match or has no valid service.
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
