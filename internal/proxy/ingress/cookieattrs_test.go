package ingress_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/ingress"
)

func TestASessionCookieHasTheAttributesOfItsService(t *testing.T) {
	for _, c := range []struct {
		all, own []string // KEY=VALUE
		want     string   // what follows the value
	}{
		{nil, nil, "; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"},
		{nil, []string{"cookie-domain=Shop.Example.com", "cookie-path=/pay", "cookie-same-site=strict", "cookie-lifetime=1h"}, "; Path=/pay; Domain=shop.example.com; Max-Age=3600; HttpOnly; SameSite=Strict"},
		{[]string{"cookie-same-site=none", "cookie-path=/all"}, []string{"cookie-path=/"}, "; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=None"},
		{[]string{"cookie-domain=bücher.example"}, nil, "; Path=/; Domain=xn--bcher-kva.example; Max-Age=86400; HttpOnly; SameSite=Lax"},
	} {
		policies := map[string]ingress.CookieAttributes{}
		for service, texts := range map[string][]string{"": c.all, "echo": c.own} {
			var a ingress.CookieAttributes
			for _, text := range texts {
				key, value, _ := strings.Cut(text, "=")
				if ok, err := a.Set(key, value); !ok || err != nil {
					t.Fatal(text, ok, err)
				}
			}
			policies[service] = a
		}
		x := sticky(t, key("k"), answers, func(cfg *ingress.Config) { cfg.Policies.Cookies = policies })
		home, sid, resp := x.visit("GET")
		if got := resp.Header.Values("Set-Cookie"); len(got) != 2 || got[1] != "sid="+sid+c.want {
			t.Errorf("%v: %q, want %q", c.own, got, c.want)
		}
		// It is good for all of its life, and a former one of a day stays good.
		for _, text := range []string{sid, tokenFor(key("k"), "echo", home, time.Now().Add(24*time.Hour))} {
			if node, _, _ := x.visit("GET", "sid="+text); node != home {
				t.Errorf("%v: the session went from %s to %s", c.own, home, node)
			}
		}
	}
}

func TestAChangeOfItsLifetimeEndsNoSession(t *testing.T) {
	for _, c := range []struct{ before, after time.Duration }{{168 * time.Hour, 24 * time.Hour}, {24 * time.Hour, 168 * time.Hour}, {720 * time.Hour, time.Minute}, {time.Minute, 720 * time.Hour}} {
		with := func(life time.Duration) *trial {
			return sticky(t, key("k"), answers, func(cfg *ingress.Config) {
				cfg.Policies.Cookies = map[string]ingress.CookieAttributes{"": {Lifetime: life}}
			})
		}
		old, changed := with(c.before), with(c.after)
		home, sid, _ := old.visit("GET")
		for range 5 { // relays that have the change and others, in turn
			for _, x := range []*trial{changed, old} {
				node, again, _ := x.visit("GET", "sid="+sid)
				if node != home {
					t.Fatalf("%v to %v: the session went from %s to %s", c.before, c.after, home, node)
				}
				if again != "" {
					sid = again
				}
			}
		}
	}
}

func TestACookieWithAPrefixIsOneThatBrowsersTake(t *testing.T) {
	operator := ingress.CookieAttributes{Domain: "example.com", Path: "/pay"}
	for name, want := range map[string]string{
		"__Host-sid":      "; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax",
		"__host-sid":      "; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax",
		"__Host-Http-sid": "; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax",
		"__Secure-sid":    "; Path=/pay; Domain=example.com; Max-Age=86400; HttpOnly; Secure; SameSite=Lax",
		"__Http-sid":      "; Path=/pay; Domain=example.com; Max-Age=86400; HttpOnly; Secure; SameSite=Lax",
		"__Hostsid":       "; Path=/pay; Domain=example.com; Max-Age=86400; HttpOnly; SameSite=Lax",
	} {
		x := sticky(t, key("k"), answers, func(cfg *ingress.Config) {
			cfg.Policies.Cookies = map[string]ingress.CookieAttributes{"echo": operator}
			cfg.Cookies = ingress.NewCookies(ingress.CookieConfig{Names: map[string]string{"echo": name}, Keys: key("k"), Registerer: prometheus.NewRegistry()})
		})
		_, _, resp := x.visit("GET")
		set := resp.Header.Values("Set-Cookie")
		if _, got, _ := strings.Cut(set[len(set)-1], ";"); ";"+got != want {
			t.Errorf("%s: %q, want %q", name, set, want)
		}
	}
}

func TestAnAnswerThatCachesMayShareHasNoSessionCookie(t *testing.T) {
	const later = "\nExpires: Fri, 01 Jan 2100 00:00:00 GMT"
	for value, cookie := range map[string]bool{
		"":                                       true,
		"Cache-Control: no-store":                true,
		"Cache-Control: private, max-age=60":     true,
		"Cache-Control: max-age=0":               true,
		"Cache-Control: no-cache":                true,
		"Cache-Control: public, no-store":        true,
		"Expires: 0":                             true,
		"Expires: Thu, 01 Jan 1970 00:00:00 GMT": true,
		"Cache-Control: public":                  false,
		"Cache-Control: Public , immutable":      false,
		"Cache-Control: max-age=60":              false,
		"Cache-Control: max-age=\"60\"":          false,
		"Cache-Control: s-maxage=1":              false,
		"Expires: Fri, 01 Jan 2100 00:00:00 GMT": false,

		// The lifetime is that of s-maxage, or else of max-age, or else of Expires.
		"Cache-Control: must-revalidate" + later:                   false,
		"Cache-Control: no-transform" + later:                      false,
		"Cache-Control: immutable" + later:                         false,
		"Cache-Control: stale-while-revalidate=60" + later:         false,
		"Pragma: no-cache" + later:                                 false, // means nothing in an answer
		"Cache-Control: must-revalidate":                           true,
		"Cache-Control: must-revalidate\nExpires: 0":               true,
		"Cache-Control: max-age=0" + later:                         true,
		"Cache-Control: s-maxage=0" + later:                        true,
		"Cache-Control: s-maxage=0, max-age=60":                    true,
		"Cache-Control: max-age=60\nCache-Control: s-maxage=0":     true,
		"Cache-Control: max-age=0, s-maxage=60":                    false,
		"Cache-Control: max-age=60, max-age=0":                     false, // which one counts is open
		"Cache-Control: private" + later:                           true,
		"Cache-Control: no-store" + later:                          true,
		"Cache-Control: no-cache" + later:                          false, // a cache stores it, and its cookie
		"Cache-Control: no-cache, max-age=60":                      false,
		"Cache-Control: no-cache, max-age=0":                       true,
		"Cache-Control: no-cache, public":                          false,
		"Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT":             true,
		"Cache-Control: public\nExpires: 0":                        false,
		"Cache-Control: max-age=0, stale-while-revalidate=60":      false,
		"Cache-Control: max-age=0, stale-if-error=60":              false,
		"Cache-Control: max-age=0, stale-while-revalidate=0":       true,
		"Cache-Control: no-cache, stale-while-revalidate=60":       false,
		"Cache-Control: must-understand, no-store, max-age=60":     false,
		"Cache-Control: must-understand, no-store":                 true,
		`Cache-Control: private="x-user", max-age=60`:              false,
		`Cache-Control: private="x-user, Set-cookie", max-age=60`:  true,
		`Cache-Control: no-cache="x-user", max-age=60`:             false,
		`Cache-Control: no-cache="x-user, Set-cookie", max-age=60`: false, // after a 304 it is sent
		`Cache-Control: note="a, public, \" max-age=60"`:           true,
		`Cache-Control: note="a, private", max-age=60`:             false,
	} {
		x := sticky(t, key("k"), func(_ int64, w http.ResponseWriter, _ *http.Request) {
			for line := range strings.SplitSeq(value, "\n") {
				if name, text, ok := strings.Cut(line, ": "); ok {
					w.Header().Add(name, text)
				}
			}
		}, unchanged)
		if _, sid, _ := x.visit("GET"); (sid != "") != cookie {
			t.Errorf("%q: cookie %q", value, sid)
		}
		if issued, withheld := x.event("issued"), x.event("cacheable"); issued+withheld != 1 || (issued == 1) != cookie {
			t.Errorf("%q: %d issued, %d withheld", value, issued, withheld)
		}
	}
}

func TestASessionCookieMayBeQuoted(t *testing.T) {
	x := sticky(t, key("k"), answers, unchanged)
	home, sid, _ := x.visit("GET")
	for range 20 {
		if node, again, _ := x.visit("GET", `sid="`+sid+`"`); node != home || again != "" {
			t.Fatalf("the session went from %s to %s with %q", home, node, again)
		}
	}
	if _, again, _ := x.visit("GET", `sid="`); again == "" {
		t.Error("a cookie of one quote was accepted")
	}
}
