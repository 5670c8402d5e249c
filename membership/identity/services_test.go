package identity

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func serviceNames(t testing.TB, names ...string) string {
	t.Helper()
	n, err := ParseServiceNames(names...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func anyServiceNames(t *rapid.T) string {
	name := rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}\*?|\*`)
	n, err := ParseServiceNames(rapid.SliceOfN(name, 0, maxServiceNames).Draw(t, "services")...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServiceNamesAllowWhatTheyName(t *testing.T) {
	for _, c := range []struct {
		names             []string
		allowed, notNamed []string
	}{
		{nil, nil, []string{"", "a"}},
		{[]string{"billing"}, []string{"billing"}, []string{"", "b", "billing2", "Billing", "billing-eu"}},
		{[]string{"api-*"}, []string{"api-", "api-v1", "api-v1.eu"}, []string{"", "api", "apiv1", "API-v1", "xapi-v1"}},
		{[]string{"a*"}, []string{"a", "ab", "a.b"}, []string{"", "b", "A"}},
		{[]string{"*"}, []string{"a", "billing", "9"}, nil},
		{[]string{"z", "api-*", "billing"}, []string{"z", "api-1", "billing"}, []string{"y", "api", "billing,z"}},
	} {
		n := serviceNames(t, c.names...)
		for _, s := range c.allowed {
			if !allows(n, s) {
				t.Errorf("%q does not allow %q", n, s)
			}
		}
		for _, s := range c.notNamed {
			if allows(n, s) {
				t.Errorf("%q allows %q", n, s)
			}
		}
	}
}

func TestServiceNamesAreSortedAndCountOnce(t *testing.T) {
	if n := serviceNames(t, "b", "a", "b", "*"); n != "*,a,b" {
		t.Errorf("%q", n)
	}
	if n := serviceNames(t); n != "" || serviceNamesOf(n) != nil {
		t.Errorf("%q of %v", n, serviceNamesOf(n))
	}
	if _, err := ParseServiceNames(strings.Split(strings.Repeat("a", maxServiceNames+1), "")...); err != nil {
		t.Errorf("repeated names count more than once: %v", err)
	}
	var many []string
	for i := range maxServiceNames + 1 {
		many = append(many, "s"+strings.Repeat("x", i))
	}
	if _, err := ParseServiceNames(many...); err == nil || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("%d names: %v", len(many), err)
	}
}

// A slow reference: a name allows a service if the text up to '*' is where the service begins.
func TestAllowAgreesWithTheDefinition(t *testing.T) {
	letters := rapid.StringMatching(`[ab][ab.-]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return letters.Draw(t, "name") + rapid.SampledFrom([]string{"", "*"}).Draw(t, "wildcard")
		}), 0, 5).Draw(t, "names")
		service := letters.Draw(t, "service")
		n, err := ParseServiceNames(names...)
		if err != nil {
			t.Fatal(err)
		}
		want := false
		for _, name := range names {
			end := strings.IndexByte(name, '*')
			want = want || end < 0 && name == service || end >= 0 && len(service) >= end && service[:end] == name[:end]
		}
		if got := allows(n, service); got != want {
			t.Fatalf("%q allows %q: %v, want %v", n, service, got, want)
		}
	})
}

func TestServiceNamesSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := claimsOf(RoleWorker, "w1")
		want.Services = anyServiceNames(t)
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Claims
		if err := json.Unmarshal(data, &got); err != nil || got != want {
			t.Fatalf("%s came back as %+v, %v", data, got, err)
		}
		if want.Services == "" && strings.Contains(string(data), "services") {
			t.Fatalf("%s: a certificate without names has the field", data)
		}
	})
}

func FuzzServiceNames(f *testing.F) {
	for _, seed := range []string{"", "*", "api-*", "a,b", "**", "*a", "-*", "a/b", "\x00", strings.Repeat("a", 64) + "*"} {
		f.Add(seed, "api-v1")
	}
	f.Fuzz(func(t *testing.T, name, service string) {
		n, err := ParseServiceNames(name)
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if list := serviceNamesOf(n); len(list) != 1 || list[0] != name {
			t.Fatalf("%q became %q", name, list)
		}
		if allows(n, service) && service != name && !strings.HasSuffix(name, "*") {
			t.Fatalf("%q allows %q", name, service)
		}
		claims := claimsOf(RoleWorker, "w1")
		claims.Services = n
		checkAccepted(t, claims)
	})
}
