package relay

import (
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/internal/settings"
)

func TestTheAddressesOfTheIngressAreReadInEveryForm(t *testing.T) {
	ca := "c=.crt"
	for text, want := range map[string]ingressAddr{
		"127.0.0.1:7410":         {addr: "127.0.0.1:7410"},
		"http://127.0.0.1:7410":  {addr: "127.0.0.1:7410"},
		"tls://127.0.0.1:7443":   {addr: "127.0.0.1:7443", secured: true},
		"tls://[::1]:7443":       {addr: "[::1]:7443", secured: true},
		"tls://:7443":            {addr: ":7443", secured: true},
		"tls://:7443;client-ca=": {addr: ":7443", secured: true, clientCA: new(string)},
		"tls://:7443; cert=a b.crt; key=a.key;key=b.key;cert=b.crt ;client-ca=c=.crt;": {
			addr: ":7443", secured: true, pairs: []clienttls.Pair{{Certificate: "a b.crt", Key: "a.key"}, {Certificate: "b.crt", Key: "b.key"}}, clientCA: &ca,
		},
	} {
		got, err := parseIngressAddr(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := parseIngressAddr(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%q: the text of it is %q", text, got)
		}
	}
	for _, text := range []string{"", "tls://", "127.0.0.1", "https://127.0.0.1:1", "tls://tls://127.0.0.1:1", "127.0.0.1:99999", "tls://127.0.0.1:1/path", "unix:/run/a",
		"127.0.0.1:1;client-ca=a", "http://127.0.0.1:1;cert=a;key=b", "tls://:1;cert=a", "tls://:1;cert=a;key=b;key=c", "tls://:1;cert=;key=",
		"tls://:1;client-ca=a;client-ca=b", "tls://:1;ca=a", "tls://;client-ca=a"} {
		if a, err := parseIngressAddr(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, a)
		}
	}
}

// The settings accept only what a relay can start with, as far as no file is read.
func TestAddressesCertificatesAndAuthoritiesOfTheIngressMustFitTogether(t *testing.T) {
	const own, ownCA = ";cert=b.crt;key=b.key", ";client-ca=b.crt"
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
		"only pairs of its own":      {[]string{tls + own + ownCA}, ""},
		"public and mutual TLS":      {[]string{tls, "--ingress-addr=tls://127.0.0.1:7444;client-ca=ca.crt", cert, key}, ""},
		"mutual and public TLS":      {[]string{tls, "--ingress-addr=tls://127.0.0.1:7444;client-ca=", cert, key, ca}, ""},
		"one with its own of two":    {[]string{tls + own, "--ingress-addr=tls://127.0.0.1:7444", cert, key, ca}, ""},
		"one without a pair of two":  {[]string{tls + own, "--ingress-addr=tls://127.0.0.1:7444"}, "ingress-tls-cert"},
		"a pair for none":            {[]string{clear, tls + own, cert, key}, "ingress-tls-cert"},
		"authorities for none":       {[]string{clear, tls + ownCA, cert, key, ca}, "ingress-client-ca"},
		"an unknown parameter":       {[]string{tls + ";crt=a", cert, key, ca}, "ingress-addr"},
		"half a pair of its own":     {[]string{tls + ";key=a", cert, key, ca}, "ingress-addr"},
		"files without TLS":          {[]string{clear + ownCA}, "ingress-addr"},
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
	ca, dir := clienttlstest.New(t), t.TempDir()
	cert, key := ca.Files(filepath.Join(dir, "a"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	_, other := ca.Files(filepath.Join(dir, "b"), clienttlstest.Certificate{DNS: []string{"a.test"}})
	authority := ca.WriteTo(filepath.Join(dir, "ca.crt"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"usable of its own":       {[]string{"--ingress-addr", "tls://127.0.0.1:7444;client-ca=;cert=" + cert + ";key=" + key, "--ingress-tls-cert", cert, "--ingress-tls-key", key, "--ingress-client-ca", authority}, ""},
		"its own key of another":  {[]string{"--ingress-addr", "tls://127.0.0.1:7444;cert=" + cert + ";key=" + other, "--ingress-tls-cert", cert, "--ingress-tls-key", key}, "cannot be used together"},
		"authorities of its own":  {[]string{"--ingress-addr", "tls://127.0.0.1:7444;client-ca=" + cert, "--ingress-tls-cert", cert, "--ingress-tls-key", key}, "no authority in it"},
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
			for i, addr := range cfg.IngressAddrs {
				_, files, _ := strings.Cut(addr, ";")
				cfg.IngressAddrs[i] = tlsScheme + anyPort + ";" + files
			}
			cfg.PeerAddr, cfg.AdminAddr = anyPort, anyPort
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
