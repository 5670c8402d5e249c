package command_test

import (
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// wrong is a value of a setting that must be refused.
type wrong struct {
	binary                 string
	args                   []string
	file                   string
	subject, cause, remedy string
}

// flag is a wrong value of a relay's flag, whose subject is the flag.
func flag(value, cause, remedy string) wrong {
	name, _, _ := strings.Cut(value, "=")
	return wrong{binary: "relay", args: []string{value}, subject: name, cause: cause, remedy: remedy}
}

// key is a wrong value of a section in the file of a relay, whose subject is an item of it.
func key(value, subject, cause, remedy string) wrong {
	return wrong{binary: "relay", file: value, subject: subject, cause: cause, remedy: remedy}
}

// service is a service of a worker with a wrong option.
func service(options, cause, remedy string) wrong {
	return wrong{binary: "worker", args: []string{"--service=billing=127.0.0.1:9000;" + options}, subject: `"billing=127.0.0.1:9000;`, cause: cause, remedy: remedy}
}

// Of each setting that people ask for before they switch from another proxy, both verbs refuse what
// cannot work, in the same words, with what is wrong, why, and what to write instead.
func TestAWrongValueIsRefusedWithSubjectCauseAndRemedy(t *testing.T) {
	dir := t.TempDir()
	ca := clienttlstest.New(t)
	authorities := ca.WriteTo(filepath.Join(dir, "ca.crt"))
	certified := func(name string, c clienttlstest.Certificate, more ...string) []string {
		cert, key := ca.Files(filepath.Join(dir, name), c)
		return append([]string{"--id=relay-1", "--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + authorities}, more...)
	}
	const names, template = "spiffe://shop.test/prod/shop/relay/relay-1", "spiffe://shop.test/{environment}/{cluster}/{role}/{node}"
	spiffe := certified("spiffe", clienttlstest.Certificate{URI: names})
	two := certified("two", clienttlstest.Certificate{URI: names, URIs: []string{"ringway://node/relay-1"}})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA := certified("rsa", clienttlstest.Certificate{URI: names, Key: rsaKey})
	relay := func(subject, cause, remedy string, args ...string) wrong {
		return wrong{binary: "relay", args: args, subject: subject, cause: cause, remedy: remedy}
	}
	withTemplate := func(text string) []string { return append(slices.Clone(spiffe), "--identity-template="+text) }

	for _, c := range []wrong{
		// The addresses of one process.
		relay("--peer-addr", "only one of it and 127.0.0.1:7000 of --gossip-addr can be bound", "differ in host or port", "--gossip-addr=127.0.0.1:7000", "--peer-addr=127.0.0.1:7000"),
		relay("--admin-addr", "only one of it and 127.0.0.1:7000 of --peer-addr can be bound", "differ in host or port", "--peer-addr=127.0.0.1:7000", "--admin-addr=:7000", "--insecure"),
		relay("--gossip-addr", "only one of it and 127.0.0.1:7000, which is for clients, can be bound", "differ in host or port", "--ingress-addr=127.0.0.1:7000", "--gossip-addr=127.0.0.1:7000"),
		{binary: "worker", args: []string{"--service=billing=127.0.0.1:9000", "--gossip-addr=127.0.0.1:7000", "--admin-addr=127.0.0.1:7000"}, subject: "--admin-addr", cause: "of --gossip-addr can be bound", remedy: "differ in host or port"},
		{binary: "worker", args: append([]string{"--service=billing=127.0.0.1:9000", "--sidecar-addr=127.0.0.1:7000", "--admin-addr=127.0.0.1:7000"}, spiffe...), subject: "--admin-addr", cause: "of --sidecar-addr can be bound", remedy: "differ in host or port"},

		// Their identities.
		relay("--identity-template", "it does not begin with spiffe://", "such as spiffe://shop.test/{environment}", withTemplate("shop.test/{environment}/{cluster}/{role}/{node}")...),
		relay("--identity-template", `its trust domain "Shop.test"`, "small letters", withTemplate("spiffe://Shop.test/{environment}/{cluster}/{role}/{node}")...),
		relay("--identity-template", "{role} is missing", "each once", withTemplate("spiffe://shop.test/{environment}/{cluster}/relay/{node}")...),
		relay("--identity-template", "{node} is in it twice", "each once", withTemplate("spiffe://shop.test/{environment}/{cluster}/{role}/{node}/{node}")...),
		relay("--identity-template", `"n-{node}", is neither fixed text nor exactly one known placeholder`, "elements are fixed text or {environment}", withTemplate("spiffe://shop.test/{environment}/{cluster}/{role}/n-{node}")...),
		relay("--identity-template", "without certificates there are no names to read", "with --tls-cert, --tls-key and --tls-ca", "--identity-template="+template),
		relay("--require-service-names", "with --identity-template no certificate names services", "without --identity-template", append(withTemplate(template), "--require-service-names")...),
		relay("spiffe.crt", "its path has 4 elements, 5 are wanted", "correct --identity-template", withTemplate(strings.Replace(template, "{node}", "ringway/{node}", 1))...),
		relay("spiffe.crt", "its SPIFFE ID counts only with an identity template", "--identity-template", spiffe...),
		relay("two.crt", "2 URI names: a SPIFFE certificate has one", "issue it so", append(two, "--identity-template="+template)...),
		relay("rsa.crt", "its key is RSA 2048", "create the certificate again with such a key", append(ofRSA, "--identity-template="+template)...),

		// Their routes.
		key("routes: [{host: 'https://shop.test', service: a}]", `route 1: host "https://shop.test"`, "matches no request", "leave the scheme out"),
		key("routes: [{host: 'shop.test:80', service: a}]", `route 1: host "shop.test:80"`, "matches no request", "leave the port out"),
		key("routes: [{host: shop.test/a, service: a}]", `route 1: host "shop.test/a"`, "matches no request", "leave the path out"),
		key("routes: [{host: '*', service: a}]", `route 1: host "*"`, "a wildcard stands for the first label", "leave host out for each host"),
		key("routes: [{host: shop.*.test, service: a}]", `route 1: host "shop.*.test"`, "stands for the whole first label", "as in *.example.com"),
		key("routes: [{host: '*.[::1]', service: a}]", `route 1: host "*.[::1]"`, "an address has no labels", "leave the wildcard out"),
		key("routes: [{host: אa.test, service: a}]", `route 1: host "אa.test"`, "not an internationalized name", "write the one that browsers send"),
		key("routes: [{host: a..test, service: a}]", `route 1: host "a..test"`, "not the name of a host", "as in shop.example.com"),
		key("routes: [{path_prefix: pay, service: a}]", `route 1: path_prefix "pay"`, "matches no request", "a path begins with /"),
		key("routes: [{path_prefix: '/pay?x=1', service: a}]", `route 1: path_prefix "/pay?x=1"`, "a path ends in front of ? and #", "leave them out"),
		key("routes: [{path_prefix: /a%20b, service: a}]", `route 1: path_prefix "/a%20b"`, "paths are compared decoded", "write what an escape stands for"),
		key("routes: [{path_prefix: /a;b, service: a}]", `route 1: path_prefix "/a;b"`, "paths are compared without parameters", "leave out ;"),
		key("routes: [{path_prefix: /a/../b, service: a}]", `route 1: path_prefix "/a/../b"`, "paths are compared without empty elements, . and ..", "leave them out"),
		key("routes: [{service: a}]", `route 1`, "has neither host nor path_prefix nor headers", "give at least one"),
		key("routes: [{host: shop.test}]", `route 1: service name ""`, "allowed are", "1 to 63 letters"),
		key("routes: [{host: shop.test, service: a}, {host: SHOP.test, service: b}]", "route 2", "matches what route 1 matches", "leave one of them out"),
		key("routes: [{host: shop.test, pathprefix: /a, service: a}]", `file key "routes"`, "no such field: pathprefix", "did you mean path_prefix?"),
		key("routes: {host: shop.test, service: a}", `file key "routes"`, "found a mapping", "want a list"),
		key("routes: [{headers: {Host: a}, service: a}]", `route 1: header "Host"`, "the host has a key of its own", "write it as host"),
		key("routes: [{headers: {X Tenant: a}, service: a}]", `route 1: header "X Tenant"`, "not the name of a header", "write letters, digits and -"),
		key("routes: [{headers: {Ringway-Service: a}, service: a}]", `route 1: header "Ringway-Service"`, "names its service already", "choose another header"),
		key("routes: [{headers: {Ringway-Hop: a}, service: a}]", `route 1: header "Ringway-Hop"`, "the relays' own", "choose another one"),
		key("routes: [{headers: {X-A: ''}, service: a}]", `route 1: header "X-A" with ""`, "a value is missing", "* stands for any"),
		key("routes: [{headers: {X-A: ' a'}, service: a}]", `route 1: header "X-A" with " a"`, "no blanks around them", "leave them out"),
		key("routes: [{headers: {X-A: a, x-a: b}, service: a}]", `route 1: header "X-A"`, "names of headers have no case", "leave one of them out"),
		key("routes: [{headers: {A: a, B: a, C: a, D: a, E: a, F: a, G: a, H: a, I: a}, service: a}]", "route 1", "has 9 headers: at most 8 are compared", "leave the others out"),
		flag("--service-policy=canary=2.0:5%", "only for a single service", "name it"),
		flag("--service-policy=shop=canary=5%", "no share", "want VERSION:N%"),
		flag("--service-policy=shop=canary=2.0:101%", "101 % is not between 0 % and 100 %", "want VERSION:N%"),
		flag("--service-policy=shop=canary=2.0:five%", "the share is not a percentage", "such as 2.0:5%"),

		// Their limits.
		key("rate-limits: [{rate: 1/s}]", "limit 1", "needs a service", "* is each service"),
		key("rate-limits: [{service: a, rate: 100}]", `limit 1: rate "100"`, "want a whole number of requests", "such as 100/s"),
		key("rate-limits: [{service: a, rate: 1.5/s}]", `limit 1: rate "1.5/s"`, "want a whole number of requests", "30/m"),
		key("rate-limits: [{service: a, rate: 0/s}]", `limit 1: rate "0/s"`, "would refuse all requests", "block the caller or the service instead"),
		key("rate-limits: [{service: a, rate: 1/s, burst: -1}]", "limit 1: burst -1", "want 1 to 1000000 requests", "or none"),
		key("rate-limits: [{service: a, rate: 1/s, burst: many}]", `file key "rate-limits"`, `found "many"`, "want a whole number"),
		key("rate-limits: [{service: a, rate: 1/s, caller: 10.0.0.0/8}]", `limit 1: caller "10.0.0.0/8"`, "is a network", "name addresses"),
		key("rate-limits: [{service: a, rate: 1/s}, {service: a, rate: 2/s}]", "limit 2", "has the caller and the service of limit 1", "leave one of them out"),
		key("routes: [{host: shop.test, service: a, rate: 5}]", `route 1: rate "5"`, "want a whole number of requests", "such as 100/s"),
		key("blocks: [{caller: a}]", "block 1", "needs a caller and a service", "* for one of them is all"),
		key("blocks: [{caller: '*', service: '*'}]", "block 1", "would block all requests", "name a caller or a service"),
		key("blocks: [{caller: 10.0.0.0/8, service: '*'}]", `block 1: caller "10.0.0.0/8"`, "is a network", "refuse a network in a firewall"),
		key("blocks: [{caller: a, service: '*', until: tomorrow}]", `file key "blocks"`, `found "tomorrow"`, "want a time such as 2026-08-01T12:00:00Z"),
		key("blocks: [{caller: a, service: '*', reason: \"a\\nb\"}]", `block 1: reason "a\nb"`, "want one line", "at most 256 bytes"),
		key("blocks: [{caller: a, service: b}, {caller: a, service: b}]", "block 2", "has the caller and the service of block 1", "leave one of them out"),
		flag("--service-policy=retry=always", "only for a single service, whose requests may run more than once", "name it"),
		flag("--service-policy=shop=retry=often", `retry "often"`, "want never, connect, idempotent or always"),

		// Cookies and heads.
		flag("--service-policy=shop=cookie-domain=localhost", "browsers refuse others", "such as example.com"),
		flag("--service-policy=shop=cookie-domain=my_shop.example.com", `cookie-domain "my_shop.example.com"`, "want labels of 1 to 63 letters, digits and '-'"),
		flag("--service-policy=cookie-domain="+strings.Repeat("a", 64)+".example.com", "browsers refuse others", "want labels of 1 to 63 letters"),
		flag("--service-policy=cookie-domain=-shop.example.com", "browsers refuse others", "not at the ends of a label"),
		relay("--session-cookie", "browsers discard a cookie with the prefix __Host- that has a domain, and cookie-domain is example.com", "a name without the prefix, or leave cookie-domain out, also of the policy of all services", "--session-cookie=shop=__Host-sid", "--service-policy=cookie-domain=example.com"),
		relay(`--session-cookie "shop=__host-sid"`, "with the prefix __Host- and another path than /, and cookie-path is /pay", "a name without the prefix, or cookie-path=/", "--session-cookie=shop=__host-sid", "--service-policy=shop=cookie-path=/pay"),
		wrong{"relay", []string{"--session-cookie=shop=__Host-sid"}, "service-policy: ['shop=cookie-path=/pay']", "--session-cookie", "cookie-path is /pay", "or cookie-path=/"},
		flag("--service-policy=shop=cookie-path=shop", `cookie-path "shop"`, "want a path from the root, such as /shop"),
		flag("--service-policy=shop=cookie-same-site=maybe", `cookie-same-site "maybe"`, "want lax, strict or none"),
		flag("--service-policy=shop=cookie-lifetime=90.5s", `cookie-lifetime "90.5s"`, "want whole seconds from 1m to 720h"),
		flag("--session-cookie=shop=s d", "not the name of a cookie", "1 to 64 letters"),
		flag("--max-answer-head=1KB", `"1KB"`, "allowed: "),
		flag("--max-answer-head=1", `"1"`, "allowed: "),
		service("check=http:healthz", `path "healthz"`, "want a path from the root such as /healthz"),
		service("check=http:/;method=BREW", `method "BREW"`, "want GET, HEAD, OPTIONS, POST"),
		service("check=tcp;method=GET", "only an http check has them", "write tcp, http:/path or grpc:service"),
		service("check=http:/;header=X-Probe", `header "X-Probe"`, "want NAME:VALUE"),
		service("check=http:/;header=Host:a", "it has an option of its own", "write host=NAME"),
		service("check=http:/;header=Content-Length:5", "the check cannot set it", "leave it out"),
		service("check=http:/;expect=2xx", `"2xx" is not a final status`, "write statuses and ranges such as 200,204,300-399"),
		service("check=http:/;expect=300-200", "the range ends before it begins", "write statuses and ranges"),
		service("method=GET", "belongs to a check, and there is none", "add check=tcp"),
	} {
		root, args := relaycmd.Command, []string{"--ingress-addr=127.0.0.1:0", "--peer-addr=127.0.0.1:0"}
		if c.binary == "worker" {
			root, args = workercmd.Command, nil
		}
		args = append(args, "--cluster=shop", "--environment=prod", "--gossip-addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0")
		args = append(args, c.args...)
		if c.file != "" {
			path := filepath.Join(dir, "settings.yaml")
			if err := os.WriteFile(path, []byte(c.file+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--config="+path)
		}
		said := refusals(t, root, args)
		if said[0] != said[1] {
			t.Errorf("%s%s: run says\n%s\nand config validate\n%s", c.args, c.file, said[0], said[1])
		}
		for _, part := range []string{c.subject, c.cause, c.remedy} {
			if part == "" || !strings.Contains(said[0], part) {
				t.Errorf("%s%s: %q is missing in\n%s", c.args, c.file, part, said[0])
			}
		}
	}
}

// refusals returns the errors of run and of config validate, empty for none.
func refusals(t *testing.T, root func() *cobra.Command, args []string) (said [2]string) {
	t.Helper()
	for i, verb := range [][]string{{"run"}, {"config", "validate"}} {
		if err := quietly(t, root(), append(verb, args...)); err != nil {
			said[i] = err.Error()
		}
	}
	return said
}
