package ingress

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ringway/ringway/internal/wire"
)

// WholeHost is the domain with which a host without a dot names the service.
const WholeHost = "."

// namer finds the service of a request: header, then host label, then routes.
type namer struct {
	suffix string      // "." + domain; empty if host names are not used
	whole  bool        // a host without a dot names the service, as in the targets of gRPC clients
	routes *routeTable // nil without routes
}

func newNamer(domain string, routes []Route) namer {
	n := namer{routes: newRouteTable(routes)}
	switch domain {
	case "":
	case WholeHost:
		n.whole = true
	default:
		name, err := plainHost(domain)
		if err != nil { // CheckDomain has reported it
			name = hostName(domain)
		}
		n.suffix = "." + name
	}
	return n
}

// service returns the name of the service of a request, empty if it names none.
func (n namer) service(r *http.Request) string {
	if name := r.Header.Get(wire.ServiceHeader); name != "" {
		return name
	}
	if n.suffix == "" && !n.whole && n.routes == nil {
		return ""
	}
	host := hostName(r.Host)
	if name := n.ofHost(host); name != "" || n.routes == nil {
		return name
	}
	if rule := n.routes.find(host, r); rule != nil {
		return rule.service
	}
	return ""
}

// ofHost returns the service that a host below the domain names.
func (n namer) ofHost(host string) string {
	if n.whole && host != "" && !strings.ContainsAny(host, ".:") {
		return host
	}
	if n.suffix != "" {
		if label, ok := strings.CutSuffix(host, n.suffix); ok && label != "" {
			first, _, _ := strings.Cut(label, ".")
			return first
		}
	}
	return ""
}

// What names the service of a request.
const (
	NamedByHeader = "header"
	NamedByDomain = "domain"
	NamedByRoute  = "route"
)

// Naming is how a request names its service.
type Naming struct {
	// Service is empty if nothing names one. By is what does.
	Service, By string
	// Route is the place in the list of routes of the one that matches the request, from 0, or -1. It
	// names the service if By says so; if it has the same service otherwise, its rate counts nevertheless.
	Route int
}

// Name returns how a client's request would name its service with these settings.
func (r *Requests) Name(req *http.Request) Naming {
	n := newNamer(r.Domain, r.Routes)
	host := hostName(req.Host)
	matches := &rule{place: -1}
	if n.routes != nil {
		if found := n.routes.find(host, req); found != nil {
			matches = found
		}
	}
	if name := req.Header.Get(wire.ServiceHeader); name != "" {
		return Naming{name, NamedByHeader, matches.place}
	}
	if name := n.ofHost(host); name != "" {
		return Naming{name, NamedByDomain, matches.place}
	}
	if matches.service != "" {
		return Naming{matches.service, NamedByRoute, matches.place}
	}
	return Naming{Route: -1}
}

// hostName returns the form in which hosts are compared: without a port, in lower case, without
// the dot behind which DNS adds no domain (RFC 3986 §3.2.2), and with one way to write an address.
func hostName(host string) string {
	name := strings.TrimSuffix(strings.ToLower(hostOnly(host)), ".")
	if strings.IndexByte(name, ':') >= 0 {
		if addr, err := netip.ParseAddr(name); err == nil {
			return addr.String()
		}
	}
	return name
}

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
