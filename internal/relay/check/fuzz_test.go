package check_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/relay/check"
)

// FuzzFacts lets one relay report any facts of itself: accepted facts can be reported
// again, the report stays bounded and fit for a terminal, and still has the faults
// of another relay.
func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"format":1,"relay":"r2","load":{"uptime_ms":5,"total":{"requests":3,"errors":1,"in_flight":2,"sessions":1},"services":[{"service":"echo","requests":3,"forwarded":{"requests":1},"workers":2,"evicted":["w1"]}],"service_count":2}}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		facts, err := check.DecodeFacts(bytes.NewReader(said))
		if err != nil {
			return
		}
		if !json.Valid(said) || facts.Format != 1 {
			t.Fatalf("accepted %q", said)
		}
		if l := facts.Load; l != nil && (len(l.Services) > check.MaxServices || l.ServiceCount < len(l.Services) || l.Total.Errors > l.Total.Requests || l.Total.InFlight < 0) {
			t.Fatalf("accepted the load %+v", l)
		}
		again, err := facts.Encode()
		if err != nil {
			t.Fatalf("cannot be told again: %v", err)
		}
		if len(again) <= check.MaxFacts {
			told, err := check.DecodeFacts(bytes.NewReader(again))
			if err != nil {
				t.Fatalf("what is told again is refused: %v", err)
			}
			if once, err := told.Encode(); err != nil || !bytes.Equal(once, again) {
				t.Fatalf("told twice: %s (%v), once %s", once, err, again)
			}
		}

		fleet := healthy()
		facts.Relay = fleet.Peers[0].ID // others are refused before
		fleet.Peers[0].Facts = facts
		other := fleet.Peers[1].Facts
		other.Reasons, other.Degraded, other.MissingCount = []string{"cut off"}, true, 7
		report := check.Judge(fleet)
		if len(report.Findings) > 200 {
			t.Fatalf("%d findings", len(report.Findings))
		}
		for _, wrong := range [][2]string{{"ready", other.Relay}, {"view-trusted", other.Relay}, {"coverage", ""}} {
			if !slices.ContainsFunc(report.Findings, func(found api.Finding) bool {
				return found.Check == wrong[0] && found.Subject == wrong[1] && found.Status == api.Failed
			}) {
				t.Fatalf("%s: not found of %q", wrong[0], wrong[1])
			}
		}
		for _, found := range report.Findings {
			for _, text := range []string{found.Subject, found.Text, found.Cause, found.Remedy} {
				if len(text) > 4*512+len("…") || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Fatalf("%s says %q", found.Check, text)
				}
			}
		}
		names := check.Names()
		if !slices.IsSortedFunc(report.Findings, func(a, b api.Finding) int {
			return slices.Index(names, a.Check) - slices.Index(names, b.Check)
		}) {
			t.Fatal("not in the order of the checks")
		}
		if second := check.Judge(fleet); !reflect.DeepEqual(report, second) {
			t.Fatalf("judged twice, %+v and %+v", report, second)
		}
	})
}
