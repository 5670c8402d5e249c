//go:build linux

package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership/identity"
)

func (f *fleet) plan(r *relay) (plan api.Plan) {
	f.Get(r, "/api/v1/services/"+echo+"/plan", &plan)
	return plan
}

// A relay that was taken over states that it carries nearly all traffic, that plans break the
// minimums, and at last settings with a version that no file can exceed.
func TestARelayThatLiesChangesPlansWithinBoundsAndCanBeUndone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("")
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 4, RelayArgs: []string{"--config", file}})
	c := takeOver(t, f, procs.Claims{Role: string(identity.RoleRelay)})
	awaitAll := func(what string, reached func(*relay) bool) {
		t.Helper()
		for _, r := range f.Relays {
			procs.Await(t, r.ID+" "+what, func() bool { return reached(r) })
		}
	}
	state := func(s advertise.RelayStatement) {
		t.Helper()
		if err := c.catalogue.State(s); err != nil {
			t.Fatal(err)
		}
	}

	state(advertise.RelayStatement{Traffic: []advertise.Traffic{{Service: echo, Rate: advertise.MaxTrafficRate}}})
	awaitAll("plans with its traffic", func(r *relay) bool {
		for _, p := range f.plan(r).Relays {
			if p.Relay == c.id && p.Traffic == advertise.MaxTrafficRate {
				if p.TrafficRatio > affinity.MaxTrafficRatio {
					t.Errorf("%s counts it as %v times the mean", r.ID, p.TrafficRatio)
				}
				return true
			}
		}
		return false
	})
	f.serves(10)

	for _, broken := range []string{"min-peers-per-worker=1", "min-peers-per-worker=1000000", "zone-slack=NaN", "relays-per-service=1", "strategy=none"} {
		before := f.metrics(f.Relays[0].Admin, "ringway_relay_plan_refused_total", func(series string) bool { return strings.Contains(series, `"invalid"`) })
		state(advertise.RelayStatement{Plan: advertise.PlanSettings{Version: 9, Body: broken}})
		procs.Await(t, "settings that break the bounds are refused: "+broken, func() bool {
			return f.metrics(f.Relays[0].Admin, "ringway_relay_plan_refused_total", func(series string) bool { return strings.Contains(series, `"invalid"`) }) > before
		})
	}
	awaitAll("keeps its own settings", func(r *relay) bool { return f.plan(r).Settings.Version == 0 })
	f.serves(10)

	state(advertise.RelayStatement{Plan: advertise.PlanSettings{Version: routing.MaxPlanVersion, Body: "strategy=rendezvous"}})
	awaitAll("follows it, and names it", func(r *relay) bool {
		s := f.plan(r).Settings
		return s.Version == routing.MaxPlanVersion && s.Author == c.id
	})
	f.serves(10)

	// The remedy of docs/operations/settings-differ.md.
	if err := f.Security.Deny("serial " + c.source.Info().Serial + " # stolen"); err != nil {
		t.Fatal(err)
	}
	awaitAll("does not list the thief any more", func(r *relay) bool { return !strings.Contains(strings.Join(f.IDs(r), " "), c.id) })
	c.stop() // its probes, which nothing answers, end within seconds
	for n, settings := range []string{"plan-version: 7\nplan-from-fleet: \"false\"\n", "plan-version: 7\n"} {
		if n > 0 {
			time.Sleep(10 * time.Second) // as the page states: until then a relay may know the former statement of another one
		}
		configure(settings)
		for _, r := range f.Relays {
			r.Signal(t, syscall.SIGHUP)
		}
		awaitAll("has its own version again", func(r *relay) bool {
			s := f.plan(r).Settings
			return s.Version == 7 && s.FromFleet == !strings.Contains(settings, "from-fleet")
		})
	}
	f.wellDuring(watching)
	awaitAll("still has its own version", func(r *relay) bool { return f.plan(r).Settings.Version == 7 })
}
