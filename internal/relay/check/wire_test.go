package check_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/wirefixture"
)

// `relay check` and `--all` compare the relays of both releases while a fleet is upgraded.
func TestTheFactsOfReleasesAreReadAndWritten(t *testing.T) {
	whole := facts("r1")
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	whole.Time = at
	whole.Certificate = &check.Certificate{NotBefore: at, NotAfter: at.Add(day), AuthorityBefore: at, AuthorityAfter: at.Add(9 * day), Problem: "no key", DenyProblem: "no list"}
	whole.Ingress = &check.IngressCertificate{NotBefore: at, NotAfter: at.Add(day), Problem: "no key"}
	whole.Reasons, whole.Degraded = []string{"not joined"}, true
	whole.Unproven = []check.Unproven{{Member: "w9", Reason: "unsigned"}}
	whole.Missing, whole.MissingCount = []check.Missing{{Service: "echo", Worker: "w1"}}, 3
	whole.Back = &check.Back{UDP: "timeout", Peer: "refused"}
	counts := api.Counts{Requests: 9, Errors: 2, InFlight: 1, Sessions: 1}
	load := check.Facts{Relay: "r1", Role: "relay", Version: "0.1.0", Time: at, Load: &check.Load{
		UptimeMs: 5000, Total: counts, ServiceCount: 1, Services: []api.ServiceTraffic{{Service: "echo", Counts: counts}},
	}}
	later := map[string]func([]byte) []byte{"a field": func(raw []byte) []byte { return append(raw[:len(raw)-1], `,"later":{"a":[1]}}`...) }}
	refused := map[string]func([]byte) []byte{"another format": func(raw []byte) []byte {
		return bytes.Replace(raw, []byte(`"format":1`), []byte(`"format":2`), 1)
	}}
	var formats []wirefixture.Format
	for name, f := range map[string]check.Facts{"facts": whole, "facts-load": load} {
		formats = append(formats, wirefixture.Format{
			Name: name, Encode: f.Encode, Later: later, Refused: refused,
			Decode: func(raw []byte) (any, error) { return check.DecodeFacts(bytes.NewReader(raw)) },
		})
	}
	wirefixture.Check(t, formats...)
}
