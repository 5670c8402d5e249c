package ingress

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/wire"
)

// routeTable finds the route of a request. Its cost depends on the length of the path and not on the
// number of routes: maps have the hosts, and for each of them the prefixes.
type routeTable struct {
	hosts map[string]*prefixes // in the form of hostName
	wild  map[string]*prefixes // what follows the label, from its dot on
	any   *prefixes            // routes without a host; nil if there are none
}

// prefixes are the routes of one host.
type prefixes struct {
	byPath  map[string][]rule // those with the most headers first
	longest int               // bytes of the longest path
}

// rule is a route in the form in which requests are compared with it.
type rule struct {
	service string
	fields  []field
	place   int // in the list of routes
}

// field is a field that a request must have. Any value matches if value is anyValue.
type field struct{ name, value string }

const anyValue = "*"

// newRouteTable returns nil if there is no route.
func newRouteTable(routes []Route) *routeTable {
	if len(routes) == 0 {
		return nil
	}
	t := &routeTable{hosts: map[string]*prefixes{}, wild: map[string]*prefixes{}}
	for i, r := range routes {
		host, err := routeHost(r.Host)
		if err != nil { // CheckRoutes has reported it
			continue
		}
		fields, err := routeFields(r.Headers)
		if err != nil {
			continue
		}
		of := t.any
		switch {
		case host == "":
			if of == nil {
				of = &prefixes{byPath: map[string][]rule{}}
				t.any = of
			}
		case host[0] == '.':
			of = prefixesOf(t.wild, host)
		default:
			of = prefixesOf(t.hosts, host)
		}
		of.longest = max(of.longest, len(r.PathPrefix))
		of.byPath[r.PathPrefix] = append(of.byPath[r.PathPrefix], rule{r.Service, fields, i})
	}
	for _, of := range slices.Concat(slices.Collect(maps.Values(t.hosts)), slices.Collect(maps.Values(t.wild)), []*prefixes{t.any}) {
		if of == nil {
			continue
		}
		for _, rules := range of.byPath {
			slices.SortStableFunc(rules, func(a, b rule) int { return cmp.Compare(len(b.fields), len(a.fields)) })
		}
	}
	return t
}

func prefixesOf(hosts map[string]*prefixes, host string) *prefixes {
	if hosts[host] == nil {
		hosts[host] = &prefixes{byPath: map[string][]rule{}}
	}
	return hosts[host]
}

// find returns the most specific rule that matches a request with this host, nil if there is none.
func (t *routeTable) find(host string, r *http.Request) *rule {
	path := comparedPath(r.URL)
	if found := t.hosts[host].find(path, r.Header); found != nil {
		return found
	}
	if dot := strings.IndexByte(host, '.'); dot > 0 && len(t.wild) > 0 {
		if found := t.wild[host[dot:]].find(path, r.Header); found != nil {
			return found
		}
	}
	return t.any.find(path, r.Header)
}

// comparedPath returns the path in the form in which routes are compared with it: decoded, and as
// nginx and Tomcat read it, without a fragment, parameters, empty elements and dot segments. Otherwise a
// client could choose by //login, /login;x or /x/..;/login that the route of /login, and its rate, does
// not count. Only a path with such parts costs more than a pass.
func comparedPath(u *url.URL) string {
	p := u.Path
	// A target has no fragment (RFC 9112 §3.2), so the parser takes it for a part of the path. RawPath
	// differs for # and %23, which is no fragment.
	if i := strings.IndexByte(u.RawPath, '#'); i >= 0 {
		if cut, err := url.PathUnescape(u.RawPath[:i]); err == nil {
			p = cut
		}
	}
	if strings.IndexByte(p, ';') >= 0 {
		p = withoutParameters(p)
	}
	switch {
	case p == "": // of a target in absolute form
		return "/"
	case p[0] != '/' || !strings.Contains(p, "//") && !strings.Contains(p, "/."):
		return p
	}
	cleaned := path.Clean(p)
	if rest, ok := strings.CutPrefix(p, cleaned); ok && (rest == "" || rest == "/") {
		return p
	}
	// Clean removes the last slash, which counts for a prefix such as /files/.
	if last := p[strings.LastIndexByte(p, '/')+1:]; cleaned != "/" && (last == "" || last == "." || last == "..") {
		cleaned += "/"
	}
	return cleaned
}

// withoutParameters returns the path without what follows a semicolon in its elements (RFC 3986 §3.3).
func withoutParameters(p string) string {
	var b strings.Builder
	for {
		element, rest, more := strings.Cut(p, "/")
		name, _, _ := strings.Cut(element, ";")
		b.WriteString(name)
		if !more {
			return b.String()
		}
		b.WriteByte('/')
		p = rest
	}
}

// find tries each prefix of the path that ends with an element or with a dot, the longest first.
func (p *prefixes) find(path string, h http.Header) *rule {
	if p == nil {
		return nil
	}
	if found := p.at(path, h); found != nil {
		return found
	}
	for i := min(len(path)-1, p.longest); i >= 0; i-- {
		if c := path[i]; c != '/' && c != '.' {
			continue
		}
		if found := p.at(path[:i+1], h); found != nil {
			return found
		}
		if path[i] == '/' {
			if found := p.at(path[:i], h); found != nil {
				return found
			}
		}
	}
	return p.at("", h)
}

func (p *prefixes) at(path string, h http.Header) *rule {
	if len(path) > p.longest {
		return nil
	}
	rules := p.byPath[path]
	for i := range rules {
		if rules[i].matches(h) {
			return &rules[i]
		}
	}
	return nil
}

func (r *rule) matches(h http.Header) bool {
	for _, f := range r.fields {
		values := h[f.name]
		if len(values) == 0 || f.value != anyValue && !slices.Contains(values, f.value) {
			return false
		}
	}
	return true
}

// maxRouteHeaders bounds the work for one rule.
const maxRouteHeaders = 8

// routeFields returns the fields of a route, ordered by name. The error is the reason why no request
// has them.
func routeFields(headers map[string]string) ([]field, error) {
	if len(headers) > maxRouteHeaders {
		return nil, fmt.Errorf("has %d headers: at most %d are compared: leave the others out", len(headers), maxRouteHeaders)
	}
	fields := make([]field, 0, len(headers))
	for name, value := range headers {
		if err := checkField(name, value); err != nil {
			return nil, fmt.Errorf("header %q with %q matches no request: %w", name, value, err)
		}
		fields = append(fields, field{http.CanonicalHeaderKey(name), value})
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(fields); i++ {
		if fields[i].name == fields[i-1].name {
			return nil, fmt.Errorf("header %q is given twice, in other letters: names of headers have no case: leave one of them out", fields[i].name)
		}
	}
	return fields, nil
}

func checkField(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !http1.ValidToken(name):
		return errors.New("not the name of a header: write letters, digits and -, without blank and colon")
	case canonical == "Host":
		return errors.New("the host has a key of its own: write it as host")
	case canonical == wire.ServiceHeader:
		return errors.New("a request with it names its service already: choose another header")
	case wire.Reserved(canonical) && canonical != wire.KeyHeader:
		return errors.New("the header is the relays' own: choose another one")
	case canonical == "Transfer-Encoding" || canonical == "Trailer":
		return errors.New("the header is not among those that a relay reads: choose another one")
	case value == "":
		return errors.New("a value is missing: * stands for any")
	case strings.TrimSpace(value) != value:
		return errors.New("values have no blanks around them: leave them out")
	case !http1.ValidValue(value):
		return errors.New("a header cannot have the value: write one line without control characters")
	}
	return nil
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
	// names the service if By states this; if it has the same service otherwise, its rate counts
	// nevertheless.
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
