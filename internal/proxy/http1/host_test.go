package http1_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/proxy/http1"
)

var (
	validHosts   = []string{"", "a", "A.example", "a.example.", "a_b-c~d", "10.0.0.1", "1", "a:80", "a:9", "a:", "a.:65535", "a:00080", "[::1]", "[::1]:80", "[::1]:", "[::ffff:10.0.0.1]", "xn--bcher-kva.example", "a!$&'()*+;=b"}
	invalidHosts = []string{
		"[::1", "]", "[]", "[", "[::1]]", "[::1]a", "[::1]80", "[::1]:x", "[10.0.0.1]", "[a]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "[v1.a]", "::1",
		"a:b", "a:80:90", ":80", ":", "a:65536", "a:99999", "a:000080", "a:-1", "a:+1", "a: 80",
		"a..b", "a..b:99999", ".a", ".", "..", "a..",
		"a%00b", "a%2fb", "%61", "a%", "a b", " a", "a\x00", "a\n", "a\x7f", "é", "\xff",
		"u@a", "u:p@a", "a/b", "a?b", "a#b", "a\\b", "a,b", "a|b", "a^b", "a`b", "a\"b", "a<b>", "{a}",
	}
)

func TestAHostIsANameOrAnAddressAndAPort(t *testing.T) {
	for _, h := range validHosts {
		if !http1.ValidHost(h) {
			t.Errorf("%q is refused", h)
		}
	}
	for _, h := range invalidHosts {
		if http1.ValidHost(h) {
			t.Errorf("%q is accepted", h)
		}
	}
}

// FuzzHost checks that net/http and net/url read each host that is accepted as the same host.
func FuzzHost(f *testing.F) {
	for _, h := range append(validHosts, invalidHosts...) {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !http1.ValidHost(host) {
			return
		}
		u, err := url.Parse("http://" + host + "/x")
		if err != nil || u.Host != host || u.Path != "/x" || u.User != nil || !httpguts.ValidHostHeader(host) || strings.Contains(u.Hostname(), ":") != (strings.Count(host, ":") > 1) {
			t.Fatalf("%q is %+v to net/url (%v)", host, u, err)
		}
	})
}
