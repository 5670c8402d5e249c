//go:build unix

package e2e

import (
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestPlanAndExplainAnswerAnOperator asks a running relay, as an operator would.
func TestPlanAndExplainAnswerAnOperator(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Services: func(int) []string { return []string{"echo"} }})
	admin := f.relays[0].Admin
	var r ran
	procs.Await(t, "both workers are connected to both relays", func() bool {
		r = ringway(t, "plan", "echo", "--admin-addr", admin)
		return r.Code == 0 && strings.Contains(r.Stdout, "connections  4\n")
	})
	containsAll(t, r.Stdout, []string{"projection, index by slot", "relays       2, each connected to 2 workers", "workers      2, each connected to 2 relays", "INDEX  RELAY  STATE", "[0..2) of 2 (all)"})
	procs.Await(t, "the connection to w2 is open", func() bool {
		r = ringway(t, "explain", "echo", "--worker", "w2", "--admin-addr", admin)
		return r.Code == 0 && strings.Contains(r.Stdout, "connected  yes, link open\n")
	})
	containsAll(t, r.Stdout, []string{"r1, affine", "w2, ready", "in range   yes", "weight     0.5000", "> r1 ##", "^ w2"})

	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{0, `"relays_per_worker"`, []string{"plan", "echo", "-o", "json"}},
		{0, "role: affine\n", []string{"explain", "echo", "-o", "yaml"}},
		{1, "want SERVICE, got no argument", []string{"plan"}},
		{1, "is it running", []string{"explain", "echo", "--admin-addr", freeAddr(t)}},
		{2, "nothing matched", []string{"plan", "absent"}},
		{2, "nothing matched", []string{"explain", "echo", "--worker", "w9"}},
	} {
		r := ringway(t, append([]string{c.args[0], "--admin-addr", admin}, c.args[1:]...)...)
		if r.Code != c.code || !strings.Contains(r.Stdout+r.Stderr, c.want) {
			t.Errorf("want exit code %d and %q: %v", c.code, c.want, r)
		}
	}
}
