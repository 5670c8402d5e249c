package ingress

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/proxy/http1"
)

// CookieAttributes are the attributes of the session cookies of a service. A field that is zero has
// its default.
type CookieAttributes struct {
	// Domain is the host whose subdomains get the cookie, too. Default: the host of the request only.
	Domain string
	// Path is where the cookie is sent. Default "/".
	Path string
	// SameSite is when other sites may cause requests with the cookie. With None the cookie is Secure
	// in any case, because browsers refuse it otherwise. Default Lax.
	SameSite http.SameSite
	// Lifetime is how long an unused cookie is valid. Default 24 h.
	Lifetime time.Duration
}

// The keys of CookieAttributes in the policy of a service.
const (
	KeyCookieDomain   = "cookie-domain"
	KeyCookiePath     = "cookie-path"
	KeyCookieSameSite = "cookie-same-site"
	KeyCookieLifetime = "cookie-lifetime"
)

var cookieKeys = [...]string{KeyCookieDomain, KeyCookiePath, KeyCookieSameSite, KeyCookieLifetime}

// CookieAttributeKeys returns the keys of CookieAttributes in their order.
func CookieAttributeKeys() []string { return cookieKeys[:] }

// The limits of CookieAttributes.Lifetime. Relays accept a key that was replaced for a day: after
// a change of the key, a cookie that was unused for longer is not valid.
const (
	minCookieLife = time.Minute
	maxCookieLife = 30 * 24 * time.Hour
)

var sameSites = map[string]http.SameSite{"lax": http.SameSiteLaxMode, "strict": http.SameSiteStrictMode, "none": http.SameSiteNoneMode}

// Set sets the attribute of a key. ok is false if it is none of these.
func (a *CookieAttributes) Set(key, value string) (ok bool, err error) {
	refuse := func(reason string) (bool, error) { return true, fmt.Errorf("%s %.80q: %s", key, value, reason) }
	switch key {
	case KeyCookieDomain:
		domain, err := plainHost(value)
		switch {
		case err != nil:
			return refuse(err.Error())
		case strings.Contains(domain, ":") || !strings.Contains(domain, ".") || isIPv4(domain):
			return refuse("want a domain with a dot, such as example.com: browsers refuse others")
		case (&http.Cookie{Name: "sid", Domain: domain}).Valid() != nil: // net/http would leave it out of each cookie
			return refuse("want labels of 1 to 63 letters, digits and '-', which is not at the ends of a label, such as my-shop.example.com: browsers refuse others")
		}
		a.Domain = domain
	case KeyCookiePath:
		if value == "" || value[0] != '/' || len(value) > 1024 || strings.Contains(value, ";") || !http1.ValidValue(value) || strings.ContainsFunc(value, func(r rune) bool { return r >= 0x7f }) {
			return refuse("want a path from the root, such as /shop, without ';'")
		}
		a.Path = value
	case KeyCookieSameSite:
		if a.SameSite = sameSites[strings.ToLower(value)]; a.SameSite == 0 {
			return refuse("want lax, strict or none")
		}
	case KeyCookieLifetime:
		d, err := time.ParseDuration(value)
		if err != nil || d < minCookieLife || d > maxCookieLife || d%time.Second != 0 {
			return refuse("want whole seconds from 1m to 720h")
		}
		a.Lifetime = d
	default:
		return false, nil
	}
	return true, nil
}

func isIPv4(host string) bool {
	return !strings.ContainsFunc(host, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
}

// Or returns a with its defaults from other.
func (a CookieAttributes) Or(other CookieAttributes) CookieAttributes {
	if a.Domain == "" {
		a.Domain = other.Domain
	}
	if a.Path == "" {
		a.Path = other.Path
	}
	if a.SameSite == 0 {
		a.SameSite = other.SameSite
	}
	if a.Lifetime == 0 {
		a.Lifetime = other.Lifetime
	}
	return a
}

var defaultCookieAttributes = CookieAttributes{Path: "/", SameSite: http.SameSiteLaxMode, Lifetime: cookieLife}

// attributes returns those of the cookies of a service.
func (p *Policies) attributes(service string) CookieAttributes {
	return p.Cookies[service].Or(p.Cookies[""]).Or(defaultCookieAttributes)
}

// Get returns the value of a key, empty if it is not set.
func (a CookieAttributes) Get(key string) string {
	switch key {
	case KeyCookieDomain:
		return a.Domain
	case KeyCookiePath:
		return a.Path
	case KeyCookieSameSite:
		for name, mode := range sameSites {
			if mode == a.SameSite {
				return name
			}
		}
	case KeyCookieLifetime:
		if a.Lifetime > 0 {
			return a.Lifetime.String()
		}
	}
	return ""
}

// OnlyOfItsHost reports whether browsers discard a cookie of this name that has a domain or another
// path than "/" (RFC 6265bis §4.1.3.2).
func OnlyOfItsHost(name string) bool { return hasPrefix(name, "__Host-") }

func hasPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// CheckCookie reports an attribute with which browsers discard a cookie of this name. Those of all
// services count for each.
func (p *Policies) CheckCookie(service, name string) error {
	switch a := p.attributes(service); {
	case !OnlyOfItsHost(name):
		return nil
	case a.Domain != "":
		return fmt.Errorf("browsers discard a cookie with the prefix __Host- that has a domain, and %s is %s: write a name without the prefix, or leave %[1]s out, also of the policy of all services", KeyCookieDomain, a.Domain)
	case a.Path != "/":
		return fmt.Errorf("browsers discard a cookie with the prefix __Host- and another path than /, and %s is %.80s: write a name without the prefix, or %[1]s=/", KeyCookiePath, a.Path)
	}
	return nil
}

// cookie returns the text of the cookie of a service with this value. What the prefix of its name
// promises has precedence (RFC 6265bis §4.1.3), because workers can advertise the name: browsers
// would discard the cookie, and the session would be lost.
func (a *CookieAttributes) cookie(name, value string, secure bool) string {
	cookie := http.Cookie{
		Name: name, Value: value, Domain: a.Domain, Path: a.Path, MaxAge: int(a.Lifetime / time.Second),
		HttpOnly: true, SameSite: a.SameSite, Secure: secure || a.SameSite == http.SameSiteNoneMode,
	}
	if OnlyOfItsHost(name) {
		cookie.Domain, cookie.Path, cookie.Secure = "", "/", true
	}
	if hasPrefix(name, "__Secure-") || hasPrefix(name, "__Http-") {
		cookie.Secure = true
	}
	return cookie.String()
}

// unquoted returns the value of a cookie without the quotes that some clients add (RFC 6265 §4.1.1).
func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}
