package ingress_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

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

func TestAnAnswerThatCachesMayShareHasNoSessionCookie(t *testing.T) {
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
	} {
		x := sticky(t, key("k"), func(_ int64, w http.ResponseWriter, _ *http.Request) {
			if name, text, ok := strings.Cut(value, ": "); ok {
				w.Header().Set(name, text)
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
