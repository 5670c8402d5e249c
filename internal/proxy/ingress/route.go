package ingress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/http1"
)

// Route maps requests for a host, a path or fields of their head to a service. Of several that
// match a request the most specific one counts, whatever their order: a host before a wildcard
// before no host, then the longest path, then the most headers.
type Route struct {
	// Host matches the request's host without its port. In *.example.com the wildcard stands for
	// one label. Empty matches any.
	Host string `yaml:"host,omitempty"`
	// PathPrefix matches the first elements of the decoded path, without empty elements and dot
	// segments: /api matches /api and /api/x, not /apiary. One that ends with . matches any rest of
	// the element, as in /shop. for all services of a package of gRPC. Empty matches any.
	PathPrefix string `yaml:"path_prefix,omitempty"`
	// Headers are fields that the request must have, each with this value in one of its lines; a
	// value * is any. Empty matches any request.
	Headers map[string]string `yaml:"headers,omitempty"`
	// Service is the service of these requests.
	Service string `yaml:"service"`
	// Rate and Burst are those of ratelimit.Rate. Default: no limit.
	Rate  string `yaml:"rate,omitempty"`
	Burst int    `yaml:"burst,omitempty"`
}

const wildcard = "*."

// routeHost returns the host of a route in the form of a rule. The error is the reason why the host
// matches no request.
func routeHost(host string) (string, error) {
	name, wild := strings.CutPrefix(host, wildcard)
	switch {
	case host == "":
		return "", nil
	case host == "*":
		return "", errors.New("a wildcard stands for the first label, as in *.example.com: leave host out for each host")
	}
	name, err := plainHost(name)
	if err != nil {
		return "", err
	}
	if wild {
		if strings.Contains(name, ":") {
			return "", errors.New("an address has no labels: leave the wildcard out")
		}
		return "." + name, nil
	}
	return name, nil
}

// idn changes internationalized names to those that browsers send. It accepts underscores, which
// some hosts have.
var idn = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// asciiHost returns an internationalized name as browsers send it, and any other host unchanged.
func asciiHost(host string) (string, error) {
	if !strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return host, nil
	}
	ascii, err := idn.ToASCII(host)
	if err != nil {
		return "", fmt.Errorf("not an internationalized name: %w: write the one that browsers send, with its labels xn--…", err)
	}
	return ascii, nil
}

// URLHost returns what clients send as the host of a request for a URL with this host and port.
func URLHost(host string) (string, error) {
	end := len(host)
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		end = i
	}
	name, err := asciiHost(host[:end])
	return name + host[end:], err
}

// plainHost returns the host of a setting in the form of hostName. The error is the reason why no
// request has this host.
func plainHost(host string) (string, error) {
	switch {
	case strings.Contains(host, "://"):
		return "", errors.New("leave the scheme out")
	case strings.ContainsAny(host, "/?#"):
		return "", errors.New("leave the path out")
	case strings.ContainsFunc(host, unicode.IsSpace):
		return "", errors.New("leave the blank out")
	case strings.HasPrefix(host, "."):
		return "", errors.New("leave the first dot out")
	case strings.Contains(host, "*"):
		return "", errors.New("a wildcard stands for the whole first label, as in *.example.com")
	}
	host, err := asciiHost(host)
	if err != nil {
		return "", err
	}
	address := host
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		address = host[1 : len(host)-1]
	}
	addr, err := netip.ParseAddr(address)
	switch {
	case err == nil && addr.Is6() && addr.Zone() == "":
		return addr.String(), nil
	case strings.Contains(host, ":"):
		return "", errors.New("leave the port out: a host is the same on each port")
	case host == "" || !http1.ValidHost(host):
		return "", errors.New("not the name of a host: write letters, digits, '-' and dots, as in shop.example.com")
	}
	return hostName(host), nil
}

// CheckDomain reports a domain below which no host is.
func CheckDomain(domain string) error {
	if domain == "" || domain == WholeHost {
		return nil
	}
	_, err := plainHost(domain)
	return err
}

// CheckRoutes reports every route that cannot match or has no valid service.
func CheckRoutes(routes []Route) error {
	var errs []error
	first := map[string]int{}
	for i, r := range routes {
		refuse := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("route %d: "+format, append([]any{i + 1}, args...)...))
		}
		if err := affinity.ValidateService(r.Service); err != nil {
			refuse("%w", err)
		}
		if r.Host == "" && r.PathPrefix == "" && len(r.Headers) == 0 {
			refuse("has neither host nor path_prefix nor headers, to %q: give at least one", r.Service)
			continue
		}
		host, err := routeHost(r.Host)
		if err != nil {
			refuse("host %q matches no request: %w", r.Host, err)
		}
		if err := checkPrefix(r.PathPrefix); err != nil {
			refuse("path_prefix %q matches no request: %w", r.PathPrefix, err)
		}
		if _, err := r.rate(); err != nil {
			refuse("%w", err)
		}
		fields, fieldsErr := routeFields(r.Headers)
		if fieldsErr != nil {
			refuse("%w", fieldsErr)
		}
		if err != nil || fieldsErr != nil {
			continue
		}
		at := fmt.Sprintf("%q %q %q", host, r.PathPrefix, fields)
		if before, ok := first[at]; ok {
			refuse("matches what route %d matches: leave one of them out", before)
		} else {
			first[at] = i + 1
		}
	}
	return errors.Join(errs...)
}

// checkPrefix returns the reason why no path of a request begins so.
func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
	case prefix[0] != '/':
		return errors.New("a path begins with /")
	case strings.ContainsAny(prefix, "?#"):
		return errors.New("a path ends in front of ? and #: leave them out")
	case strings.Contains(prefix, ";"):
		return errors.New("paths are compared without parameters: leave out ; and what follows it in its element")
	case strings.Contains(prefix, "%"):
		return errors.New("paths are compared decoded: write what an escape stands for")
	}
	elements := strings.Split(prefix, "/")
	for i := 1; i < len(elements)-1; i++ { // more may follow the last one
		if e := elements[i]; e == "" || e == "." || e == ".." {
			return errors.New("paths are compared without empty elements, . and ..: leave them out")
		}
	}
	return nil
}
