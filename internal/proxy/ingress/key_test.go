package ingress

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

func sources(t *testing.T, text string) KeySources {
	t.Helper()
	s, err := ParseKeySources(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheKeyIsTheFirstOfItsSourcesThatTheRequestHas(t *testing.T) {
	long := strings.Repeat("k", maxKey+1)
	for _, c := range []struct {
		source, target, header, remote, want string
	}{
		{"header:Ringway-Key", "/", "Ringway-Key: alice", "", "alice"},
		{"header:x-user", "/", "X-User: alice", "", "alice"},
		{"header:x-user", "/", "Ringway-Key: alice", "", ""}, // the setting names where keys are
		{"header:x-user", "/", "X-User: ", "", ""},
		{"header:x-user", "/", "X-User: " + long, "", hashedKey(long)},
		{"header:x-user", "/", "X-User: a\tb", "", "a\tb"},
		{"header:authorization", "/", "Authorization: Bearer 1", "", hashedKey("Bearer 1")},
		{"header:x-forwarded-for", "/", "X-Forwarded-For: 198.51.100.7", "192.0.2.1:80", ""}, // a client can claim anything
		{"header:x-forwarded-for", "/", "X-Forwarded-For: 198.51.100.7", "10.0.0.1:80", "198.51.100.7"},
		{"cookie:sid", "/", `Cookie: a=b; sid=s1; sid=s2`, "", hashedKey("s1")},
		{"cookie:sid", "/", `Cookie: sid=; sid="s2"`, "", hashedKey("s2")},
		{"cookie:sid", "/", `Cookie: SID=s1; xsid=s2; sid`, "", ""},
		{"query:user", "/p?a=b&user=alice&user=bob", "", "", "alice"},
		{"query:user", "/p?us%65r=al%69ce", "", "", "alice"},
		{"query:user", "/p?user=a+b", "", "", "a b"},
		{"query:user", "/p?user=a%0d%0aX:1", "", "", hashedKey("a\r\nX:1")}, // goes along as a header
		{"query:user", "/p?user=%20a", "", "", hashedKey(" a")},
		{"query:user", "/p?user=%zz&user=", "", "", ""},
		{"query:user", "/p?user=" + long, "", "", hashedKey(long)},
		{"caller", "/", "", "192.0.2.1:80", "192.0.2.1"},
		{"caller", "/", "", "[2001:db8:2:3:4::9]:80", "2001:db8:2:3::"},
		{"caller", "/", "Ringway-Caller: web", "192.0.2.1:80", "192.0.2.1"},
		{"caller", "/", "Ringway-Caller: web", "10.0.0.1:80", "web"},
		{"caller", "/", "", "10.0.0.1:80", ""}, // the address of all its clients
		{"query:user;header:X-User", "/", "X-User: alice", "", "alice"},
		{"query:user;header:X-User", "/?user=bob", "X-User: alice", "", "bob"},
		{"cookie:sid;caller", "/", "", "192.0.2.1:80", "192.0.2.1"},
	} {
		h := New(Config{Requests: Requests{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Keys: Keys{"": sources(t, c.source)}}})
		r := httptest.NewRequest("GET", c.target, nil)
		if c.remote != "" {
			r.RemoteAddr = c.remote
		}
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			r.Header.Set(name, value)
		}
		tr := &request{handler: h, service: &routing.Service{Name: "echo"}, from: h.originOf(r), r: r}
		if got := tr.findKey(); got != c.want {
			t.Errorf("%s of %.40s with %.40q from %q: %.60q, want %.60q", c.source, c.target, c.header, c.remote, got, c.want)
		}
	}
}

func TestAServiceHasItsOwnSourcesAndARelayReadsThoseOfTheFirst(t *testing.T) {
	keys := Keys{"shop": sources(t, "query:user"), "": sources(t, "header:X-User")}
	for _, c := range []struct {
		service string
		keys    Keys
		hop     bool
		want    string
	}{
		{"shop", keys, false, "query"},
		{"echo", keys, false, "header"},
		{"echo", Keys{}, false, "ringway"},
		{"shop", keys, true, "ringway"},
	} {
		h := New(Config{Requests: Requests{Keys: c.keys}, FromRelay: c.hop})
		r := httptest.NewRequest("GET", "/?user=query", nil)
		r.Header.Set("X-User", "header")
		r.Header.Set(wire.KeyHeader, "ringway")
		tr := &request{handler: h, service: &routing.Service{Name: c.service}, from: h.originOf(r), r: r}
		if got := tr.findKey(); got != c.want {
			t.Errorf("%s, from a relay %v: %q, want %q", c.service, c.hop, got, c.want)
		}
	}
}

func TestWhatIsNoSourceOfKeysIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "no source of keys",
		"caller;":                "no source of keys",
		"caller:web":             "no source of keys",
		"path:/":                 "no source of keys",
		"header":                 `"" is no name of a header`,
		"header:a b":             `"a b" is no name of a header`,
		"cookie:a=b":             `"a=b" is no name of a cookie`,
		"query:a&b":              `"a&b" is no name of a query parameter`,
		"header:ringway_caller":  "the relays' own header",
		"header:Ringway-Service": "the relays' own header",
		"header:host":            "not among the fields",
		"caller;query:a;caller":  "the source caller is named twice",
		"header:x-a;header:X-A":  "the source header:X-A is named twice",
		nine("query:a%d", ";"):   "9 sources, at most 8",
	} {
		if s, err := ParseKeySources(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, s, err, want)
		}
	}
	const text = " header:x-user ; cookie:sid;query:user;caller"
	if got, want := sources(t, text).String(), "header:X-User;cookie:sid;query:user;caller"; got != want || sources(t, got).String() != want {
		t.Errorf("%q reads %q", text, got)
	}
}

func nine(form, between string) string {
	var texts []string
	for i := range 9 {
		texts = append(texts, fmt.Sprintf(form, i))
	}
	return strings.Join(texts, between)
}

// FuzzKeys holds keys against what other relays make of them, and parameters against
// net/url.
func FuzzKeys(f *testing.F) {
	f.Add("user=alice&user=bob", "sid=1; sid=2", "user")
	f.Add("us%65r=a+b;&user=%0d%0a", `sid="x y"`, "u;r")
	f.Add("=&&user", "sid", "a\xff")
	f.Fuzz(func(t *testing.T, query, cookie, name string) {
		if values, err := url.ParseQuery(query); err == nil {
			if got, want := queryValue(query, name), values.Get(name); got != want {
				t.Errorf("%q has %q = %q, net/url reads %q", query, name, got, want)
			}
		}
		h := New(Config{Requests: Requests{Keys: Keys{"": {{keyQuery, name}, {keyCookie, "sid"}}}}})
		r := &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{"Cookie": {cookie}}}
		tr := &request{handler: h, service: &routing.Service{Name: "echo"}, r: r}
		key := tr.findKey()
		if len(key) > maxKey || !httpguts.ValidHeaderFieldValue(key) || BoundedKey(key) != key {
			t.Errorf("%q cannot be passed on", key)
		}
	})
}
