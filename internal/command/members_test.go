package command_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/command"
)

// canned is an admin API that gives these answers by path.
func canned(t *testing.T, answers map[string]string) (addr string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestMembersListsTheLivingAndThoseThatWent(t *testing.T) {
	addr := canned(t, map[string]string{
		"/api/v1/members": `{"version":7,"self":"r1","members":[
			{"id":"r1","epoch":1000,"role":"relay","gossip_addr":"10.0.0.1:7400"},
			{"id":"w2","epoch":1000,"role":"worker","datacenter":"fra","gossip_addr":"10.0.0.2:7401","leaving":true},
			{"id":"w3","epoch":9000,"role":"worker","gossip_addr":"10.0.0.3:7401"}]}`,
		"/api/v1/departures": `{"degraded":true,"departed":[
			{"member":{"id":"a1","role":"gate"},"reason":"left","at":"2026-01-02T03:04:05Z"},
			{"member":{"id":"w3","role":"worker"},"reason":"failed","at":"2026-01-02T03:04:05Z"},
			{"member":{"id":"w9","role":"worker"},"reason":"failed","at":"2026-01-02T03:04:05Z"}]}`,
	})
	for _, c := range []struct{ filter, want string }{
		{"", "a1 gate left, r1 relay alive, w2 worker leaving, w3 worker alive, w9 worker failed"}, // w3 is back
		{"--state=failed", "w9 worker failed"},
		{"--state=failed,left", "a1 gate left, w9 worker failed"},
		{"--role=worker --state=alive", "w3 worker alive"},
		{"--datacenter=fra", "w2 worker leaving"},
	} {
		out, errs, err := execute(t, command.MembersCommand("relay"), append(strings.Fields(c.filter), "--admin-addr", addr)...)
		if err != nil || errs != "" {
			t.Errorf("%v, %s", err, errs)
		}
		// It is a part of the table: a watch on a terminal erases everything else.
		out, warned := strings.CutSuffix(out, "r1 may be cut off from the cluster: see its log\n")
		if !warned {
			t.Errorf("no warning in\n%s", out)
		}
		var got []string
		for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
			if i > 0 {
				got = append(got, strings.Join(strings.Fields(line)[:3], " "))
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, want %s", c.filter, strings.Join(got, ", "), c.want)
		}
	}
	out, _, err := execute(t, command.MembersCommand("relay"), "--role=gate", "--state=alive", "-o", "json", "--admin-addr", addr)
	if !errors.Is(err, command.ErrNothingMatched) || !strings.Contains(out, `"degraded": true`) || !strings.Contains(out, `"members": []`) {
		t.Errorf("%s, %v", out, err)
	}
}
