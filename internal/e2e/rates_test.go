//go:build unix

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/api"
)

// TestRelaysTogetherLetPassWhatALimitAllowsUntilAReload asks three relays, of which each lets a third
// of a burst pass, and takes the limit out of their file.
func TestRelaysTogetherLetPassWhatALimitAllowsUntilAReload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relays.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const burst = 30
	write("rate-limits: [{service: echo, rate: 1/h, burst: 30}]\n")
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Plain: true, RelayArgs: []string{"--config", file},
		Services: func(int) []string { return []string{echo} }})
	await(t, "three relays serve echo", func() bool {
		for _, r := range f.relays {
			var plan api.Plan
			if _, status := f.ready(r.Admin); status != 200 || f.api(r.Admin, "/api/v1/services/"+echo+"/plan", &plan) != 200 || len(plan.Relays) != 3 {
				return false
			}
		}
		return true
	})
	ask := func(r *relay) answer {
		return f.client.send(request{method: http.MethodGet, addr: r.Ingress, path: "/", service: echo})
	}
	all := 0
	for _, r := range f.relays {
		passed, a := 0, ask(r)
		for ; a.status == http.StatusOK && passed <= burst; a = ask(r) {
			passed++
		}
		if all += passed; passed == 0 || passed > burst/3 {
			t.Errorf("%s let %d requests pass, a third of %d are its share", r.ID, passed, burst)
		}
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("RateLimit-Policy") != `"service";q=1;w=3600` || !strings.Contains(a.body, "rate_limited") {
			t.Errorf("beyond it: %v", a)
		}
	}
	t.Logf("%d of %d requests passed", all, burst)
	write("")
	for _, r := range f.relays {
		r.Signal(t, syscall.SIGHUP)
		await(t, "requests pass without the limit", func() bool { return ask(r).status == http.StatusOK })
	}
}
