package relay

import (
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/api"
)

// A relay that serves keeps what it has when the fleet grows beyond its limit, because all relays
// reach it together. One that starts has only an arbitrary part, so it is not ready.
func TestARelayAtItsLimitSaysSoAndOneThatStartsThereIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := f.relay(func(s *Settings) { s.MaxMembers = 2 })
	first.await(t, "the relay is ready", func() bool { return first.sockets.isOpen() })
	for _, id := range []string{"w1", "w2"} {
		f.echo(id)
	}
	first.await(t, "the limit is reached", func() bool { return len(first.exceededLimits()) > 0 })
	if reasons := first.Reasons(); len(reasons) > 0 {
		t.Errorf("a ready relay at its limit is not ready: %v", reasons)
	}
	if notices := (&statusSource{Relay: first.Relay}).document(t.Context(), "").Notices; len(notices) == 0 || notices[0].Runbook != "limit-reached" {
		t.Errorf("the status page does not say it: %+v", notices)
	}
	report, err := first.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found *api.Finding
	for i, one := range report.Findings {
		if one.Check == "limits" {
			found = &report.Findings[i]
		}
	}
	if found == nil || found.Status != api.Failed || !strings.Contains(found.Text, "--max-members") || found.Page != "docs/operations/limit-reached.md" {
		t.Errorf("the check finds %+v", found)
	}

	second := f.relay(func(s *Settings) { s.MaxMembers = 2 })
	second.await(t, "the relay that starts names the setting", func() bool {
		for _, reason := range second.Reasons() {
			if strings.Contains(reason.Text, "--max-members") {
				return true
			}
		}
		return false
	})
	if second.sockets.isOpen() {
		t.Error("it has opened its ingress")
	}
}
