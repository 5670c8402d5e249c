package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// The kinds of key sources.
const (
	keyHeader = "header"
	keyCookie = "cookie"
	keyQuery  = "query"
	keyCaller = "caller" // the sender of the request, as for the circuits
)

// KeySource is a place in a request where its key may be.
type KeySource struct{ kind, name string }

// KeySources are read in order; the first value that is not empty is the key.
type KeySources []KeySource

// Keys are the places of the keys of requests by service, under "" those of all others. They
// apply only to clients' requests: a relay that forwards passes the key on in wire.KeyHeader.
type Keys map[string]KeySources

var defaultKeySources = KeySources{{keyHeader, wire.KeyHeader}}

// Of returns the sources of a service.
func (k Keys) Of(service string) KeySources {
	for _, name := range []string{service, ""} {
		if sources, ok := k[name]; ok {
			return sources
		}
	}
	return defaultKeySources
}

// maxKeySources is the maximum number of places in one request to search.
const maxKeySources = 8

// KeySourceForms describes the input of ParseKeySources.
const KeySourceForms = "header:NAME, cookie:NAME, query:NAME, caller; several with ';' between them, in their order"

// ParseKeySources parses "cookie:sid;header:X-User;caller".
func ParseKeySources(text string) (KeySources, error) {
	var sources KeySources
	for one := range strings.SplitSeq(text, ";") {
		source, err := parseKeySource(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if slices.Contains(sources, source) {
			return nil, fmt.Errorf("the source %s is named twice", source)
		}
		sources = append(sources, source)
	}
	if len(sources) > maxKeySources {
		return nil, fmt.Errorf("%d sources, at most %d are read", len(sources), maxKeySources)
	}
	return sources, nil
}

func parseKeySource(text string) (KeySource, error) {
	kind, name, named := strings.Cut(text, ":")
	switch s := (KeySource{kind, name}); {
	case kind == keyCaller && !named:
		return s, nil
	case kind == keyHeader && httpguts.ValidHeaderFieldName(name):
		s.name = http.CanonicalHeaderKey(name)
		if s.name != wire.KeyHeader && wire.Reserved(s.name) {
			return s, fmt.Errorf("%s is the relays' own header, no key of a client", s.name)
		}
		if s.name == "Host" || s.name == "Transfer-Encoding" || s.name == "Trailer" {
			return s, fmt.Errorf("%s is not among the fields that a relay reads", s.name)
		}
		return s, nil
	case kind == keyCookie && httpguts.ValidHeaderFieldName(name): // the name of a cookie is a token as well
		return s, nil
	case kind == keyQuery && name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("&=,", r) }):
		return s, nil
	case kind == keyHeader || kind == keyCookie || kind == keyQuery:
		return s, fmt.Errorf("%q is no name of a %s", name, map[string]string{keyHeader: "header", keyCookie: "cookie", keyQuery: "query parameter"}[kind])
	}
	return KeySource{}, errors.New("no source of keys")
}

// String returns the form that ParseKeySources reads.
func (s KeySource) String() string {
	if s.name == "" {
		return s.kind
	}
	return s.kind + ":" + s.name
}

// String returns the form that ParseKeySources reads.
func (s KeySources) String() string {
	texts := make([]string, len(s))
	for i, one := range s {
		texts[i] = one.String()
	}
	return strings.Join(texts, ";")
}

// findKey returns the key of the request, empty if it has none.
func (t *request) findKey() string {
	sources := defaultKeySources
	if t.from != fromRelay {
		sources = t.handler.cfg.Keys.Of(t.service.Name)
	}
	for _, s := range sources {
		if value := t.keyFrom(s); value != "" {
			if s.secret() {
				return hashedKey(value)
			}
			return BoundedKey(value)
		}
	}
	return ""
}

// KeyOf returns the key of a client's request to a service, as far as it shows its key: without the
// client, a key by the caller is empty.
func (r *Requests) KeyOf(req *http.Request, service string) string {
	t := request{r: req, from: fromClient, handler: &Handler{cfg: Config{Requests: *r}}, service: &routing.Service{Name: service}}
	return t.findKey()
}

func (t *request) keyFrom(s KeySource) string {
	switch s.kind {
	case keyHeader:
		if t.from == fromClient && saysOrigin(s.name) {
			return "" // not trusted, and not passed on
		}
		if values := t.r.Header[s.name]; len(values) > 0 {
			return values[0]
		}
	case keyCookie:
		for _, cookie := range t.r.CookiesNamed(s.name) {
			if cookie.Value != "" {
				return cookie.Value
			}
		}
	case keyQuery:
		return strings.Clone(queryValue(t.r.URL.RawQuery, s.name)) // a key is kept longer than its request
	case keyCaller:
		return t.caller()
	}
	return ""
}

// secret reports whether the value is a credential. Logs and other relays then get its
// hash.
func (s KeySource) secret() bool {
	return s.kind == keyCookie || s.kind == keyHeader && (s.name == "Authorization" || s.name == "Proxy-Authorization" || s.name == "Cookie")
}

// queryValue returns the first value of a parameter, like url.Values.Get. It allocates
// only if there is an escape.
func queryValue(query, name string) string {
	for part := range strings.SplitSeq(query, "&") {
		if strings.Contains(part, ";") {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name {
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			return value
		}
	}
	return ""
}

// maxKey is the maximum length of a key in bytes.
const maxKey = 256

// BoundedKey returns the key that relays use, keep and pass on in wire.KeyHeader: the key
// itself, or its hash if it is longer than 256 bytes or not valid as a header value.
func BoundedKey(key string) string {
	if len(key) > maxKey || !httpguts.ValidHeaderFieldValue(key) || strings.TrimSpace(key) != key {
		return hashedKey(key)
	}
	return key
}

// hashedKey returns half of the SHA-256, long enough to exclude collisions.
func hashedKey(key string) string {
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(digest[:sha256.Size/2])
}
