package ingress

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// testKeys sign with the first key and verify with all; without any there is no key.
type testKeys []string

func (k testKeys) Sign(message []byte) []byte {
	if len(k) == 0 {
		return nil
	}
	return macOf(k[0], message)
}

func (k testKeys) Verify(message, mac []byte) bool {
	for _, key := range k {
		if hmac.Equal(macOf(key, message), mac) {
			return true
		}
	}
	return false
}

func macOf(key string, message []byte) []byte {
	h := hmac.New(sha256.New, []byte(key))
	_, _ = h.Write(message)
	return h.Sum(nil)
}

func cookieOf(service string, keys CookieKeys) *serviceCookie {
	return NewCookies(CookieConfig{Names: map[string]string{service: "sid"}, Keys: keys, Registerer: prometheus.NewRegistry()}).named(service, "sid")
}

func TestATokenCountsOnlyAsLongAndWhereItWasSignedFor(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	echo := cookieOf("echo", testKeys{"now", "before"})
	in := func(d time.Duration, service string, keys testKeys) string {
		c := cookieOf(service, keys)
		return token{expires: uint64(now.Add(d).Unix()), service: c.service, endpoint: tagOf(service, "w1")}.encode(keys)
	}
	good := in(cookieLife, "echo", testKeys{"now"})
	flipped := func(i int) string { // one bit of one byte
		b := []byte(good)
		raw, err := tokenCoding.DecodeString(string(b))
		if err != nil {
			t.Fatal(err)
		}
		raw[i] ^= 1
		return tokenCoding.EncodeToString(raw)
	}
	for name, c := range map[string]struct {
		text  string
		want  cookieEvent
		renew bool
	}{
		"signed now":                        {good, cookieAccepted, false},
		"more than half of its life left":   {in(cookieLife/2, "echo", testKeys{"now"}), cookieAccepted, false},
		"less than half of its life left":   {in(cookieLife/2-time.Second, "echo", testKeys{"now"}), cookieAccepted, true},
		"in its last second":                {in(time.Second, "echo", testKeys{"now"}), cookieAccepted, true},
		"over":                              {in(0, "echo", testKeys{"now"}), cookieExpired, false},
		"long over":                         {in(-20*365*cookieLife, "echo", testKeys{"now"}), cookieExpired, false},
		"of a relay whose clock is ahead":   {in(cookieLife+cookieSkew, "echo", testKeys{"now"}), cookieAccepted, false},
		"of a longer lifetime":              {in(cookieLife+cookieSkew+time.Second, "echo", testKeys{"now"}), cookieAccepted, true},
		"of the longest lifetime":           {in(maxCookieLife+cookieSkew, "echo", testKeys{"now"}), cookieAccepted, true},
		"good for longer than any is":       {in(maxCookieLife+cookieSkew+time.Second, "echo", testKeys{"now"}), cookieExpired, false},
		"without an end":                    {token{expires: 1<<64 - 1, service: echo.service}.encode(testKeys{"now"}), cookieExpired, false},
		"signed with a former key":          {in(cookieLife, "echo", testKeys{"before"}), cookieAccepted, true},
		"signed with a key that is unknown": {in(cookieLife, "echo", testKeys{"other"}), cookieForged, false},
		"of another service":                {in(cookieLife, "billing", testKeys{"now"}), cookieForeign, false},
		"with another time":                 {flipped(8), cookieForged, false},
		"with another service":              {flipped(9), cookieForged, false},
		"with another endpoint":             {flipped(tokenSigned - 1), cookieForged, false},
		"with another signature":            {flipped(tokenSize - 1), cookieForged, false},
		"of another version":                {flipped(0), cookieMalformed, false},
		"empty":                             {"", cookieMalformed, false},
		"cut":                               {good[:len(good)-1], cookieMalformed, false},
		"too long":                          {good + "A", cookieMalformed, false},
		"quoted":                            {`"` + good[:len(good)-2] + `"`, cookieMalformed, false},
		"with a line break":                 {good[:len(good)-1] + "\n", cookieMalformed, false},
		"in the other alphabet":             {strings.Repeat("+", len(good)), cookieMalformed, false},
		"with bits behind its end":          {good[:len(good)-1] + string(good[len(good)-1]+1), cookieMalformed, false},
		"huge":                              {strings.Repeat("A", 1<<20), cookieMalformed, false},
	} {
		if tok, renew, verdict := echo.validate(c.text, now, cookieLife); verdict != c.want || renew != c.renew {
			t.Errorf("%s: %s, renewed %v, want %s, %v", name, cookieEvents[verdict], renew, cookieEvents[c.want], c.renew)
		} else if verdict == cookieAccepted && tok.endpoint != tagOf("echo", "w1") {
			t.Errorf("%s: it names another endpoint", name)
		}
	}
	if _, _, verdict := cookieOf("echo", testKeys{}).validate(good, now, cookieLife); verdict != cookieNoKey {
		t.Errorf("without a key a cookie is %s", cookieEvents[verdict])
	}
	if text := (token{}).encode(testKeys{}); text != "" {
		t.Errorf("without a key %q is signed", text)
	}
	if strings.Contains(good, "w1") || len(good) != 87 {
		t.Errorf("%q", good)
	}
}

func TestTheCookieOfAServiceIsTheOneOfTheSettingsOrElseTheAdvertisedOne(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := NewCookies(CookieConfig{Names: map[string]string{"echo": "sid", "off": ""}, Keys: testKeys{}, Registerer: registry})
	service := func(name, advertised string) *routing.Service {
		s, err := routing.NewService(name, selection.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetRoute(&routing.Route{Index: -1, Policy: advertise.Policy{SessionCookie: advertised}}, 0); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, step := range []struct{ service, advertised, want string }{
		{"echo", "other", "sid"}, {"off", "other", ""}, {"billing", "", ""}, {"billing", "b1", "b1"}, {"billing", "b2", "b2"}, {"billing", "", ""},
	} {
		got := ""
		if one := c.forService(service(step.service, step.advertised)); one != nil {
			got = one.name
		}
		if got != step.want {
			t.Errorf("%+v: %q", step, got)
		}
	}
	if (*Cookies)(nil).forService(service("billing", "b")) != nil {
		t.Error("without Cookies there is a cookie")
	}
	series := func(service string) (n int) {
		for labels := range logtest.Series(t, registry, "ringway_relay_session_cookies_total") {
			if strings.Contains(labels, service) {
				n++
			}
		}
		return n
	}
	c.Vanished(service("billing", "b2"))
	c.Vanished(service("echo", ""))
	if series("billing") != 0 || series("echo") != len(cookieEvents) {
		t.Errorf("%d series of a service that is gone, %d of one that the settings name", series("billing"), series("echo"))
	}
}

// FuzzSessionToken has no text count that was not signed, and each token has one text.
func FuzzSessionToken(f *testing.F) {
	keys := testKeys{"now", "before"}
	echo, now := cookieOf("echo", keys), time.Unix(1_800_000_000, 0)
	good := token{expires: uint64(now.Add(cookieLife).Unix()), service: echo.service, endpoint: tagOf("echo", "w1")}
	old := good.encode(testKeys{"before"})
	for _, text := range []string{"", good.encode(keys), old, good.encode(testKeys{"other"}), good.encode(keys)[:86] + "\n", strings.Repeat("A", tokenLength), strings.Repeat("_", tokenLength)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, ok := decodeToken(text)
		if ok {
			if again := tokenCoding.EncodeToString(append(tok.message[len(tokenUse):], tok.mac...)); again != text {
				t.Errorf("%q is also %q", text, again)
			}
		}
		_, _, verdict := echo.validate(text, now, cookieLife)
		if (verdict == cookieMalformed) == ok {
			t.Errorf("%q: %s", text, cookieEvents[verdict])
		}
		if signed := text == good.encode(keys) || text == old; verdict == cookieAccepted && !signed {
			t.Errorf("%q was not signed, and counts", text)
		}
	})
}
