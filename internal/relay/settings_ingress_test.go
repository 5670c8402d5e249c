package relay

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/relay/termination/terminationtest"
	"github.com/ringway/ringway/internal/settings"
)

func TestTheAddressesOfTheIngressAreReadInEveryForm(t *testing.T) {
	for text, want := range map[string]ingressAddr{
		"127.0.0.1:7410":        {"127.0.0.1:7410", false},
		"http://127.0.0.1:7410": {"127.0.0.1:7410", false},
		"tls://127.0.0.1:7443":  {"127.0.0.1:7443", true},
		"tls://[::1]:7443":      {"[::1]:7443", true},
		"tls://:7443":           {":7443", true},
	} {
		got, err := parseIngressAddr(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := parseIngressAddr(got.String()); err != nil || again != got {
			t.Errorf("%q: the text of it is %q", text, got)
		}
	}
	for _, text := range []string{"", "tls://", "127.0.0.1", "https://127.0.0.1:1", "tls://tls://127.0.0.1:1", "127.0.0.1:99999", "tls://127.0.0.1:1/path", "unix:/run/a"} {
		if a, err := parseIngressAddr(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, a)
		}
	}
}

// The settings accept only what a relay can start with, as far as no file is read.
func TestAddressesCertificatesAndAuthoritiesOfTheIngressMustFitTogether(t *testing.T) {
	const clear, tls, cert, key, ca = "--ingress-addr=127.0.0.1:7410", "--ingress-addr=tls://127.0.0.1:7443", "--ingress-tls-cert=a.crt", "--ingress-tls-key=a.key", "--ingress-client-ca=ca.crt"
	for name, c := range map[string]struct {
		args    []string
		setting string // of the problem; empty: accepted
	}{
		"nothing":                    {nil, ""},
		"both kinds":                 {[]string{clear, tls, cert, key}, ""},
		"only TLS":                   {[]string{tls, cert, key, ca}, ""},
		"the same port elsewhere":    {[]string{clear, "--ingress-addr=127.0.0.2:7410"}, ""},
		"free ports":                 {[]string{"--ingress-addr=127.0.0.1:0", "--ingress-addr=127.0.0.1:0"}, ""},
		"TLS without a pair":         {[]string{tls}, "ingress-tls-cert"},
		"a pair without TLS":         {[]string{clear, cert, key}, "ingress-tls-cert"},
		"a key without certificate":  {[]string{tls, key}, "ingress-tls-cert"},
		"a certificate without key":  {[]string{tls, cert, key, cert}, "ingress-tls-cert"},
		"authorities without TLS":    {[]string{clear, ca}, "ingress-client-ca"},
		"the same address":           {[]string{clear, clear}, "ingress-addr"},
		"the same with another kind": {[]string{clear, "--ingress-addr=tls://127.0.0.1:7410", cert, key}, "ingress-addr"},
		"the same in another form":   {[]string{"--ingress-addr=[::1]:7410", "--ingress-addr=[0:0::1]:7410"}, "ingress-addr"},
		"all addresses and one":      {[]string{clear, "--ingress-addr=:7410"}, "ingress-addr"},
		"another scheme":             {[]string{"--ingress-addr=ftp://127.0.0.1:7410"}, "ingress-addr"},
	} {
		_, err := load(t, c.args...)
		var problems settings.Problems
		errors.As(err, &problems)
		if c.setting == "" && err != nil || c.setting != "" && (len(problems) != 1 || problems[0].Setting != c.setting) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefusesTheFilesThatARelayRefuses(t *testing.T) {
	ca, dir := terminationtest.New(t), t.TempDir()
	cert, key := ca.Files(filepath.Join(dir, "a"), terminationtest.Certificate{DNS: []string{"a.test"}})
	_, other := ca.Files(filepath.Join(dir, "b"), terminationtest.Certificate{DNS: []string{"a.test"}})
	authority := ca.WriteTo(filepath.Join(dir, "ca.crt"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"usable":                  {[]string{"--ingress-tls-cert", cert, "--ingress-tls-key", key, "--ingress-client-ca", authority}, ""},
		"the key of another":      {[]string{"--ingress-tls-cert", cert, "--ingress-tls-key", other}, "cannot be used together"},
		"a missing certificate":   {[]string{"--ingress-tls-cert", dir + "/absent", "--ingress-tls-key", key}, "no such file"},
		"authorities of no issue": {[]string{"--ingress-tls-cert", cert, "--ingress-tls-key", key, "--ingress-client-ca", cert}, "no authority in it"},
		"no file of authorities":  {[]string{"--ingress-tls-cert", cert, "--ingress-tls-key", key, "--ingress-client-ca", dir}, "directory"},
	} {
		s, err := load(t, slices.Concat([]string{"--ingress-addr", "tls://127.0.0.1:7443", "--gossip-addr", anyPort}, c.args)...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		build := func(start func(Config) error) error {
			cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			return start(cfg)
		}
		checked := build(Check)
		made := build(func(cfg Config) error {
			cfg.IngressAddrs, cfg.PeerAddr, cfg.AdminAddr = []string{tlsScheme + anyPort}, anyPort, anyPort
			r, err := New(cfg)
			if err != nil {
				return err
			}
			return r.Close()
		})
		for who, err := range map[string]error{"Check": checked, "New": made} {
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, %s: %v", name, who, err)
			}
		}
	}
}
