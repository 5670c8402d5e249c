package ingress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

const (
	// cookieLife is how long a session cookie is valid by default. A cookie that is used is renewed
	// with the answer after half of this time, so that only an unused cookie expires. It
	// equals the time for which relays accept a key that was replaced.
	cookieLife = 24 * time.Hour
	// cookieSkew is how far ahead the clock of the relay that signed may be.
	cookieSkew = 10 * time.Minute
	// maxCookies is how many cookies of the name one request may carry: each well-formed one
	// costs an HMAC for each accepted key.
	maxCookies = 4
)

// CookieKeys sign and verify session cookies; sharedkey.Keeper implements it.
type CookieKeys interface {
	// Sign returns nil while there is no key.
	Sign(message []byte) []byte
	// Verify also accepts the signatures of former keys.
	Verify(message, mac []byte) bool
}

// CookieConfig describes Cookies.
type CookieConfig struct {
	// Names are the cookie names by service, empty for none. They have precedence over what a
	// service advertises.
	Names map[string]string
	// Keys of the cluster. Required.
	Keys CookieKeys
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

// Cookies keep the requests of one client to a service on one endpoint, by a cookie that
// any relay of the cluster can read and only a relay can create. The relay that picks the
// worker reads and sets the cookie, not the one that forwards. All listeners share one.
type Cookies struct {
	cfg    CookieConfig
	events *prometheus.CounterVec
	// services are the cookies by service, as *serviceCookie. Another name makes another one.
	services sync.Map
}

// serviceCookie is the cookie of one service.
type serviceCookie struct {
	name    string
	service serviceTag
	keys    CookieKeys
	index   atomic.Pointer[endpointIndex]
	events  [len(cookieEvents)]prometheus.Counter
}

type cookieEvent int

const (
	cookieIssued cookieEvent = iota
	cookieNoKey
	cookieAccepted
	cookieMalformed
	cookieForged
	cookieForeign
	cookieExpired
	cookieGone
	cookieUnusable
	cookieCacheable
)

var cookieEvents = [...]string{
	cookieIssued: "issued", cookieNoKey: "no_key", cookieAccepted: "accepted", cookieMalformed: "malformed", cookieForged: "signature",
	cookieForeign: "service", cookieExpired: "expired", cookieGone: "endpoint_gone", cookieUnusable: "endpoint_unusable", cookieCacheable: "cacheable",
}

// NewCookies registers the metrics.
func NewCookies(cfg CookieConfig) *Cookies {
	events := metric.With(cfg.Registerer).CounterVec("ringway_relay_session_cookies_total", "Session cookies by service and event: issued with an answer; accepted, the request goes to the endpoint of its cookie; no_key, none was issued or judged because this relay has no shared key yet; and why one was refused: malformed, signature, service (it is another service's), expired, endpoint_gone (not among the endpoints of this relay), endpoint_unusable (evicted or without room); cacheable, none was issued because a cache may give the answer to other clients.", "service", "event")
	c := &Cookies{cfg: cfg, events: events}
	for service, name := range cfg.Names {
		c.named(service, name)
	}
	return c
}

// forService returns the cookie of a service, nil if it has none.
func (c *Cookies) forService(service *routing.Service) *serviceCookie {
	if c == nil {
		return nil
	}
	name, set := c.cfg.Names[service.Name]
	if !set {
		name = service.Route().Policy.SessionCookie
	}
	return c.named(service.Name, name)
}

// named returns the cookie of a service with this name, nil for none.
func (c *Cookies) named(service, name string) *serviceCookie {
	if name == "" {
		return nil
	}
	if known, ok := c.services.Load(service); ok && known.(*serviceCookie).name == name {
		return known.(*serviceCookie)
	}
	sum := hashed(service, "")
	s := &serviceCookie{name: name, service: serviceTag(sum[:len(serviceTag{})]), keys: c.cfg.Keys}
	for event, label := range cookieEvents {
		s.events[event] = c.events.WithLabelValues(service, label)
	}
	c.services.Store(service, s)
	return s
}

// Vanished forgets the cookie of a service that is Gone, and deletes its series unless the
// settings name the service.
func (c *Cookies) Vanished(service *routing.Service) {
	if _, known := c.services.Load(service.Name); !known || c.cfg.Names[service.Name] != "" {
		return
	}
	c.services.Delete(service.Name)
	c.events.DeletePartialMatch(prometheus.Labels{"service": service.Name})
}

func (c *serviceCookie) count(e cookieEvent) { c.events[e].Inc() }

// A token is the value of a cookie: version, time of expiry (Unix time), service, endpoint
// and the MAC of these, in base64 without padding.
const (
	tokenVersion = 1
	tokenSigned  = 1 + 8 + len(serviceTag{}) + len(endpointTag{})
	tokenSize    = tokenSigned + sha256.Size
)

// A token holds hashes of service and endpoint, so that a cookie reveals no name or
// address. The endpoint's hash covers both names, so that a token of another service
// matches no endpoint.
type (
	serviceTag  [8]byte
	endpointTag [16]byte
)

func hashed(service, node string) [sha256.Size]byte {
	return sha256.Sum256([]byte("ringway session\x00" + service + "\x00" + node))
}

func tagOf(service, node string) endpointTag {
	sum := hashed(service, node)
	return endpointTag(sum[:len(endpointTag{})])
}

// tokenUse separates these signatures from other uses of the shared key.
const tokenUse = "ringway session cookie\x00"

var (
	tokenCoding = base64.RawURLEncoding.Strict()
	tokenLength = tokenCoding.EncodedLen(tokenSize)
)

type token struct {
	expires  uint64
	service  serviceTag
	endpoint endpointTag
	message  []byte // the signed bytes
	mac      []byte
}

// encode signs a token. The result is empty while there is no key.
func (t token) encode(keys CookieKeys) string {
	message := t.signed()
	mac := keys.Sign(message)
	if mac == nil {
		return ""
	}
	return tokenCoding.EncodeToString(append(message[len(tokenUse):], mac...))
}

func (t token) signed() []byte {
	message := make([]byte, 0, len(tokenUse)+tokenSize)
	message = append(append(message, tokenUse...), tokenVersion)
	message = binary.BigEndian.AppendUint64(message, t.expires)
	return append(append(message, t.service[:]...), t.endpoint[:]...)
}

// decodeToken parses a token without checking its contents. Each token has one text.
func decodeToken(text string) (t token, ok bool) {
	if len(text) != tokenLength {
		return token{}, false
	}
	var raw [tokenSize]byte
	// The decoder skips line breaks, so fewer bytes may come out.
	if n, err := tokenCoding.Decode(raw[:], []byte(text)); err != nil || n != tokenSize || raw[0] != tokenVersion {
		return token{}, false
	}
	t.expires = binary.BigEndian.Uint64(raw[1:])
	n := 9 + copy(t.service[:], raw[9:])
	copy(t.endpoint[:], raw[n:])
	t.message, t.mac = t.signed(), raw[tokenSigned:]
	return t, true
}

// validate decides whether the value of a cookie is accepted, and whether to renew it.
func (c *serviceCookie) validate(text string, now time.Time, life time.Duration) (t token, renew bool, verdict cookieEvent) {
	t, ok := decodeToken(text)
	if !ok {
		return t, false, cookieMalformed
	}
	own := c.keys.Sign(t.message)
	switch current := hmac.Equal(own, t.mac); {
	case own == nil:
		return t, false, cookieNoKey
	case !current && !c.keys.Verify(t.message, t.mac):
		return t, false, cookieForged
	case t.service != c.service:
		return t, false, cookieForeign
	default:
		// A former key is accepted only for cookieLife: the session continues with the current
		// key.
		renew = !current
	}
	// The bound is that of all relays and not this relay's own lifetime: a relay that was reloaded
	// later, or this one before its reload, may have signed the cookie with another one. Only a
	// relay whose clock is wrong signs one that is good for longer.
	if at := uint64(now.Unix()); t.expires <= at || t.expires > at+seconds(maxCookieLife+cookieSkew) {
		return t, false, cookieExpired
	} else if t.expires-at < seconds(life/2) || t.expires-at > seconds(life+cookieSkew) {
		renew = true
	}
	return t, renew, cookieAccepted
}

func seconds(d time.Duration) uint64 { return uint64(d / time.Second) }

// endpointIndex finds the endpoints of one route by their tags in tokens. It is immutable.
type endpointIndex struct {
	route *routing.Route
	byTag map[endpointTag]*routing.Target
}

// target returns the endpoint of the route that a token names, nil if there is none.
func (c *serviceCookie) target(service string, route *routing.Route, tag endpointTag) *routing.Target {
	index := c.index.Load()
	if index == nil || index.route != route {
		index = &endpointIndex{route, make(map[endpointTag]*routing.Target, len(route.Range))}
		for _, t := range route.Range {
			index.byTag[tagOf(service, t.Node)] = t
		}
		c.index.Store(index)
	}
	return index.byTag[tag]
}

// session is the state of the session cookie of one request.
type session struct {
	cookie *serviceCookie // nil if the service has none
	read   bool
	node   string // the endpoint that the cookie names, empty if none
	renew  bool   // the cookie is accepted, and a new one replaces it
	set    bool   // the answer of the current attempt carries a cookie
	noKey  bool   // it would carry one if there were a key
}

// pickSession begins the first attempt of a request on the endpoint that its cookie names.
// It returns false if no cookie names an endpoint that can be used now.
func (t *request) pickSession(now time.Duration) (pick selection.Pick[*routing.Target], ok bool) {
	s := &t.session
	if s.read {
		return pick, false
	}
	s.read = true
	wall, checked, life := time.Now(), 0, t.handler.cfg.Policies.attributes(t.service.Name).Lifetime
	for _, line := range t.r.Header["Cookie"] {
		for line != "" {
			var one string
			one, line, _ = strings.Cut(line, ";")
			name, value, _ := strings.Cut(textproto.TrimString(one), "=")
			if name != s.cookie.name {
				continue
			}
			if checked++; checked > maxCookies {
				return pick, false
			}
			token, renew, verdict := s.cookie.validate(unquoted(value), wall, life)
			if verdict == cookieAccepted {
				pick, verdict = t.takeNamed(token.endpoint, selection.Instant(now))
			}
			s.cookie.count(verdict)
			if verdict == cookieAccepted {
				s.node, s.renew = pick.Value().Node, renew
				return pick, true
			}
		}
	}
	return pick, false
}

// takeNamed begins a request on the endpoint that a token names. It skips an endpoint that
// is evicted or full, as every strategy does.
func (t *request) takeNamed(tag endpointTag, now selection.Instant) (selection.Pick[*routing.Target], cookieEvent) {
	target := t.session.cookie.target(t.service.Name, t.route, tag)
	if target == nil {
		return selection.Pick[*routing.Target]{}, cookieGone
	}
	endpoints := t.service.Endpoints
	if !endpoints.Usable(target.ID, now) {
		return selection.Pick[*routing.Target]{}, cookieUnusable
	}
	pick, err := endpoints.Take(target.ID, now)
	if err != nil {
		return selection.Pick[*routing.Target]{}, cookieUnusable // it has just left the range, or become full
	}
	return pick, cookieAccepted
}

// setCookie returns the cookie for the answer of the target, empty if the client's cookie
// is still good.
func (t *request) setCookie(target *routing.Target) string {
	s := &t.session
	s.set, s.noKey = false, false
	if s.node == target.Node && !s.renew {
		return ""
	}
	attributes := t.handler.cfg.Policies.attributes(t.service.Name)
	of := token{expires: uint64(time.Now().Unix()) + seconds(attributes.Lifetime), service: s.cookie.service, endpoint: tagOf(t.service.Name, target.Node)}
	text := of.encode(s.cookie.keys)
	if s.noKey = text == ""; s.noKey {
		return ""
	}
	s.set = true
	return attributes.cookie(s.cookie.name, text, t.clientSecured())
}

// cookieSent counts the cookie of an answer that begins. One that caches may keep has none.
func (t *request) cookieSent(withheld bool) {
	if withheld {
		t.session.cookie.count(cookieCacheable)
		return
	}
	t.session.cookie.count(cookieIssued)
}

// clientSecured reports whether the client uses TLS: to this relay, to the proxy that this
// relay trusts, or to the relay that forwarded the request.
func (t *request) clientSecured() bool {
	if values := t.r.Header["X-Forwarded-Proto"]; t.from != fromClient && len(values) > 0 {
		first, _, _ := strings.Cut(values[0], ",")
		return strings.EqualFold(textproto.TrimString(first), "https")
	}
	return t.r.TLS != nil && t.from != fromRelay
}
