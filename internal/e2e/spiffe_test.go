//go:build unix

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// spiffeTemplate is how the issuer of these tests names workloads.
const spiffeTemplate = "spiffe://shop.test/{environment}/{cluster}/ringway/{role}/{node}"

// spiffeID is the ID of a member of this cluster.
func spiffeID(role, node string) string {
	return fmt.Sprintf("spiffe://shop.test/%s/%s/ringway/%s/%s", environment, cluster, role, node)
}

// spiffeIssuer puts an authority that knows nothing of Ringway in the place of that of a fleet, with
// a certificate for each ID. It adds a DNS name, as many issuers do.
func spiffeIssuer(t *testing.T, s *security, ids map[string]string) {
	t.Helper()
	ca := clienttlstest.New(t)
	ca.WriteTo(s.Path("ca/ca.crt"))
	key, err := os.ReadFile(s.Path("gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	for node, id := range ids {
		ca.Files(s.Path(node), clienttlstest.Certificate{URI: id, DNS: []string{node + ".shop.test"}})
		if err := os.WriteFile(s.Path(node+".keys"), key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFleetFormsWithTheSPIFFEIDsOfAnotherIssuer covers every way by which members reach each
// other: gossip, sessions of attached workers, sidecars, the deny list and the admin API.
func TestAFleetFormsWithTheSPIFFEIDsOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	for name, attached := range map[string]bool{"in gossip": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--identity-template", spiffeTemplate}
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Secure: true, Attached: attached, RelayArgs: args, WorkerArgs: args,
				Services: func(int) []string { return []string{echo} },
				Issued: func(s *security) {
					spiffeIssuer(t, s, map[string]string{"r1": spiffeID("relay", "r1"), "r2": spiffeID("relay", "r2"), "w1": spiffeID("worker", "w1"), "w2": spiffeID("worker", "w2"),
						"stranger": strings.Replace(spiffeID("worker", "stranger"), "/"+cluster+"/", "/other/", 1), "operator": spiffeID("client", "operator"), "x1": spiffeID("relay", "x1"), "x2": strings.Replace(spiffeID("relay", "x2"), "/ringway/", "/other/", 1)})
				}})
			f.awaitRange(t, 2)
			for _, r := range f.relays {
				endpoints := map[string]bool{}
				procs.Await(t, r.ID+" has requests answered by both workers", func() bool {
					if a := f.call(r, echo); a.status == 200 {
						endpoints[a.header.Get(endpointHeader)] = true
					}
					return len(endpoints) == 2
				})
			}

			if err := f.Security.Deny("node w1"); err != nil {
				t.Fatal(err)
			}
			f.awaitRange(t, 1)
			for _, r := range f.relays {
				if a := f.call(r, echo); a.status != 200 {
					t.Errorf("%s with the other worker: %v", r.ID, a)
				}
			}
			if attached {
				return
			}
			stranger := start(t, processConfig{Name: "stranger", Binary: "worker", Args: append(append(append([]string{"run", "--cluster", cluster, "--environment", environment, "--id", "stranger",
				"--log-format", "json", "--gossip-addr", freeAddr(t), "--admin-addr", freeAddr(t), "--sidecar-addr", freeAddr(t), "--service", "echo=127.0.0.1:1"}, f.Join()...), f.Security.Flags("stranger", "stranger")...), args...)})
			checkRefusal(t, stranger, `cluster is "e2e"`, `the certificate has "other"`)

			differs, otherAdmin := strings.Replace(spiffeTemplate, "/ringway/", "/other/", 1), freeAddr(t) // right for x2 alone
			other := start(t, processConfig{Name: "x2", Binary: "relay", Args: append(append(append(adminArgs(t, "relay", otherAdmin), f.Join()...), f.Security.Flags("x2", "x2")...), "--id", "x2", "--identity-template", differs)})
			procs.Await(t, "relay check reports why x2 cannot join", func() bool {
				r := ringway(t, "check", "--admin-addr", otherAdmin)
				return r.Code == 1 && strings.Contains(r.Stdout, "as in the identity template "+differs+": issue it so, or correct --identity-template")
			})
			procs.Await(t, "a relay of the fleet logs what to compare", func() bool {
				return strings.Contains(f.relays[0].Output()+f.relays[1].Output(), "the same identity template if any")
			})
			other.Signal(t, syscall.SIGTERM)
			other.Exit(t)

			for template, want := range map[string]string{
				spiffeTemplate: "the settings are valid",
				"":             "its SPIFFE ID counts only with an identity template (--identity-template",
				strings.Replace(spiffeTemplate, "shop.test", "other.test", 1): "it does not begin with spiffe://other.test/",
				"spiffe://shop.test/{role}/{node}":                            "{environment} is missing",
			} {
				r := ringway(t, append(append([]string{"config", "validate", "--cluster", cluster, "--environment", environment, "--id", "r1"}, f.Security.Flags("r1", "r1")...), "--identity-template", template)...)
				if (r.Code == 0) != (template == spiffeTemplate) || !strings.Contains(r.Stdout+r.Stderr, want) {
					t.Errorf("config validate with %q: %v", template, r)
				}
			}

			addr := freeAddr(t)
			p := start(t, processConfig{Name: "x1", Binary: "relay", Args: append(append(adminArgs(t, "relay", addr), f.Security.Flags("x1", "x1")...), append(args, "--admin-tls", "--admin-operator", "operator")...)})
			procs.Await(t, "it answers a probe over TLS", func() bool {
				return commandOf(t, "relay", "health", "--admin-tls", "--admin-addr", addr).Code == 0
			})
			as := func(holder string, more ...string) ran {
				return ringway(t, append([]string{"members", "--admin-addr", addr, "--admin-tls-cert", f.Security.Path(holder + ".crt"), "--admin-tls-key", f.Security.Path(holder + ".key"), "--admin-tls-ca", f.Security.Path("ca/ca.crt")}, more...)...)
			}
			for holder, want := range map[string]int{"operator": 0, "x1": 0, "r2": 1, "stranger": 1} {
				if r := as(holder, "--admin-identity-template", spiffeTemplate); r.Code != want {
					t.Errorf("as %s: %v", holder, r)
				}
			}
			if r := as("operator"); r.Code == 0 || !strings.Contains(r.Stderr, "identity template") {
				t.Errorf("without the template: %v", r)
			}
			p.Signal(t, syscall.SIGTERM)
			p.Exit(t)
		})
	}
}
