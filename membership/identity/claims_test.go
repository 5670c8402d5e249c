package identity

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/keyfile"
)

func TestClaimsAreReadFromTheURINames(t *testing.T) {
	got, err := fromURIs(uris(t, "spiffe://example.org/x", "ringway://role/relay", "ringway://cluster/prod",
		"ringway://env/eu", "ringway://dc/fra", "ringway://node/relay-7", "https://example.org/"))
	if err != nil {
		t.Fatal(err)
	}
	if want := claimsOf(RoleRelay, "relay-7"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAnythingButExactlyOneOfEachIsRefused(t *testing.T) {
	good := []string{"ringway://role/relay", "ringway://cluster/prod", "ringway://env/eu", "ringway://dc/fra", "ringway://node/relay-7"}
	without := func(kind string) []string {
		var rest []string
		for _, u := range good {
			if !strings.HasPrefix(u, "ringway://"+kind+"/") {
				rest = append(rest, u)
			}
		}
		return rest
	}
	with := func(more ...string) []string { return append(append([]string(nil), good...), more...) }
	instead := func(kind, uri string) []string { return append(without(kind), uri) }
	for name, c := range map[string]struct {
		uris []string
		want string // "" is accepted
	}{
		"all five":                {good, ""},
		"no datacenter":           {without("dc"), ""},
		"scheme in capitals":      {instead("role", "RINGWAY://role/relay"), ""},
		"other schemes":           {with("spiffe://role/gate", "urn:ringway:role"), ""},
		"no role":                 {without("role"), "no role"},
		"no cluster":              {without("cluster"), "no cluster"},
		"no environment":          {without("env"), "no env"},
		"no node":                 {without("node"), "no node"},
		"two roles":               {with("ringway://role/gate"), "more than one role"},
		"one role twice":          {with("ringway://role/relay"), "more than one role"},
		"two clusters":            {with("ringway://cluster/dev"), "more than one cluster"},
		"two environments":        {with("ringway://env/us"), "more than one env"},
		"two datacenters":         {with("ringway://dc/ams"), "more than one dc"},
		"two nodes":               {with("ringway://node/relay-8"), "more than one node"},
		"good and malformed role": {with("ringway://role/"), "allowed are 1 to 63"},
		"unknown role":            {instead("role", "ringway://role/manager"), "unknown role"},
		"role in capitals":        {instead("role", "ringway://role/Relay"), "unknown role"},
		"unknown kind":            {with("ringway://datacenter/fra"), "unknown kind"},
		"kind in capitals":        {instead("role", "ringway://Role/relay"), "unknown kind"},
		"no kind":                 {with("ringway:///x"), "unknown kind"},
		"opaque":                  {with("ringway:role/relay"), "unknown kind"},
		"empty value":             {instead("dc", "ringway://dc/"), "allowed are 1 to 63"},
		"no path":                 {instead("dc", "ringway://dc"), "malformed"},
		"value too long":          {instead("node", "ringway://node/"+strings.Repeat("a", 64)), "allowed are 1 to 63"},
		"second path element":     {instead("node", "ringway://node/a/b"), "allowed are 1 to 63"},
		"two slashes":             {instead("node", "ringway://node//a"), "allowed are 1 to 63"},
		"trailing slash":          {instead("node", "ringway://node/a/"), "allowed are 1 to 63"},
		"query":                   {instead("node", "ringway://node/a?b=c"), "malformed"},
		"bare query":              {instead("node", "ringway://node/a?"), "malformed"},
		"fragment":                {instead("node", "ringway://node/a#b"), "malformed"},
		"user":                    {instead("node", "ringway://x@node/a"), "malformed"},
		"port":                    {instead("node", "ringway://node:1/a"), "unknown kind"},
		"escape":                  {instead("node", "ringway://node/%61"), "malformed"},
		"space":                   {instead("node", "ringway://node/a%20b"), "allowed are 1 to 63"},
		"letters of elsewhere":    {instead("node", "ringway://node/ä"), "allowed are 1 to 63"},
		"nothing":                 {nil, "no role; no cluster; no env; no node"},
		"services":                {with("ringway://service/billing", "ringway://service/api-*", "ringway://service/*", "ringway://service/billing"), ""},
		"no service":              {with("ringway://service/"), "allowed are the name of a service"},
		"two wildcards":           {with("ringway://service/**"), "allowed are the name of a service"},
		"a wildcard in front":     {with("ringway://service/*-api"), "allowed are the name of a service"},
		"a wildcard inside":       {with("ringway://service/a*b"), "allowed are the name of a service"},
		"an escaped wildcard":     {with("ringway://service/%2A"), "malformed"},
		"a list of services":      {with("ringway://service/a,b"), "allowed are the name of a service"},
		"a service of dots":       {with("ringway://service/.."), "allowed are the name of a service"},
		"a service of elements":   {with("ringway://service/a/b"), "allowed are the name of a service"},
		"a service and a query":   {with("ringway://service/a?b"), "malformed"},
		"a service and a port":    {with("ringway://service:1/a"), "unknown kind"},
		"misspelt services":       {with("ringway://services/a"), "unknown kind"},
		"too many services":       {with(strings.Split(strings.Repeat("ringway://service/a ", 33), " ")[:33]...), "more than 32 services"},
		"far too many":            {with(strings.Split(strings.Repeat("ringway://dc/fra ", 100), " ")[:100]...), "more than 32"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fromURIs(uris(t, c.uris...))
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var claimsErr *claimsError
			if !errors.As(err, &claimsErr) {
				t.Fatalf("error %v is no claimsError", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
			if got != (Claims{}) {
				t.Errorf("claims %+v came with the error", got)
			}
		})
	}
}

// HS-B8: the error lists all that is wrong.
func TestEveryMistakeOfACertificateIsNamedInOneError(t *testing.T) {
	_, err := fromURIs(uris(t, "ringway://role/boss", "ringway://role/relay", "ringway://dc/a", "ringway://dc/b", "ringway://zone/1", "ringway://node/-?x"))
	var claimsErr *claimsError
	if !errors.As(err, &claimsErr) {
		t.Fatal(err)
	}
	// boss, a second role, a second dc, zone, the node; cluster and env missing.
	if len(claimsErr.Problems) != 7 {
		t.Errorf("want 7 problems, got %d: %q", len(claimsErr.Problems), claimsErr.Problems)
	}
}

func TestNoCertificateHasNoClaims(t *testing.T) {
	if _, err := FromCertificate(nil); err == nil {
		t.Error("claims without a certificate")
	}
}

func anyClaims(t *rapid.T) Claims {
	value := rapid.StringMatching(`[a-zA-Z0-9._-]{1,63}`)
	return Claims{
		Role: rapid.SampledFrom(Roles()).Draw(t, "role"), Cluster: value.Draw(t, "cluster"), Environment: value.Draw(t, "env"),
		Datacenter: rapid.OneOf(rapid.Just(""), value).Draw(t, "dc"), Node: value.Draw(t, "node"),
		Services: anyServiceNames(t),
	}
}

func TestValidClaimsSurviveACertificate(t *testing.T) {
	a := newAuthority(t)
	rapid.Check(t, func(t *rapid.T) {
		c := anyClaims(t)
		if err := c.validate(); err != nil {
			t.Fatal(err)
		}
		pem, _, err := a.Issue(c, 1e9)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := keyfile.Certificates(pem)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromCertificate(certs[0])
		if err != nil || got != c {
			t.Fatalf("%+v came back as %+v, %v", c, got, err)
		}
	})
}

func TestClaimsThatNoMemberWouldAcceptAreNotIssued(t *testing.T) {
	_, _, err := newAuthority(t).Issue(Claims{Role: "boss", Cluster: "a b", Datacenter: "ü", Services: "a*b"}, 1e9)
	for _, want := range []string{`role "boss"`, `cluster "a b"`, `environment ""`, `datacenter "ü"`, `node ""`, `service "a*b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

func checkAccepted(t *testing.T, c Claims) {
	t.Helper()
	if err := c.validate(); err != nil {
		t.Fatalf("accepted %+v: %v", c, err)
	}
	again, err := fromURIs(c.uris())
	if err != nil || again != c {
		t.Fatalf("%+v came back as %+v, %v", c, again, err)
	}
}

func FuzzClaimsFromCertificate(f *testing.F) {
	a := newAuthority(f)
	f.Add(a.forge(f, claimsOf(RoleGate, "g"), nil).Certificate[0])
	f.Add(a.forge(f, Claims{Role: "boss"}, nil).Certificate[0])
	worker := claimsOf(RoleWorker, "w")
	worker.Services = "*,api-*,billing"
	f.Add(a.forge(f, worker, nil).Certificate[0])
	f.Add(a.cert.Raw)
	f.Add([]byte{0x30, 0x82})
	f.Fuzz(func(t *testing.T, der []byte) {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		if c, err := FromCertificate(cert); err == nil {
			checkAccepted(t, c)
		}
	})
}

func FuzzClaimsFromURIs(f *testing.F) {
	f.Add("ringway://role/relay\nringway://cluster/a\nringway://env/b\nringway://node/c")
	f.Add("ringway://role/relay\nringway://cluster/a\nringway://env/b\nringway://node/c\nringway://dc/d\nspiffe://x/y")
	f.Add("ringway://role/worker\nringway://cluster/a\nringway://env/b\nringway://node/c\nringway://service/api-*\nringway://service/*\nringway://service/x")
	f.Add("ringway://role/%72elay\nringway:///\nringway:x\nringway://node/a/../b")
	f.Fuzz(func(t *testing.T, text string) {
		var us []*url.URL
		for line := range strings.SplitSeq(text, "\n") {
			if u, err := url.Parse(line); err == nil {
				us = append(us, u)
			}
		}
		c, err := fromURIs(us)
		if err == nil {
			checkAccepted(t, c)
			return
		}
		if len(err.Error()) > 8192 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
	})
}
