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
	suffix string // "." + domain; empty if host names are not used
	whole  bool   // a host without a dot names the service, as in the targets of gRPC clients
	routes []rule
}

func newNamer(domain string, routes []Route) namer {
	n := namer{routes: rulesOf(routes)}
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
	path := r.URL.Path
	if path == "" { // of a target in absolute form
		path = "/"
	}
	for i := range n.routes {
		if n.routes[i].matches(host, path) {
			return n.routes[i].service
		}
	}
	return ""
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
