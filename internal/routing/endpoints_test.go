package routing_test

import (
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// The control has the same view, so its probes prove that there was time for one.
func TestARouterThatOnlyPicksNeitherConnectsNorProbes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 1)
	soon := func(pickOnly bool) func(*routing.Config) {
		return func(cfg *routing.Config) { cfg.PickOnly, cfg.ReachTimeout = pickOnly, 20*time.Millisecond }
	}
	only, control := watch(t, c.relays[0], soon(true)), watch(t, c.relays[0], soon(false))
	forwards := watch(t, c.relays[0], func(cfg *routing.Config) { cfg.Self, cfg.Role, cfg.PickOnly = "gate", "gate", true })
	probes := func(r *rig) int { return r.counters("ringway_relay_probes_total")[`ok`] }
	procs.Await(t, "probes", func() bool { return probes(control) > 2 })
	for name, r := range map[string]*rig{"picks": only, "forwards": forwards} {
		procs.Await(t, name+" is settled", r.Settled)
		s, _ := r.Service("echo")
		_, err := s.Pick("", selection.Instant(0), new(routing.Tried))
		if (err == nil) != (name == "picks") {
			t.Errorf("%s: %v", name, err)
		}
		for result, n := range r.counters("ringway_relay_upstream_dials_total") {
			if n > 0 {
				t.Errorf("%s: %d dials are %s", name, n, result)
			}
		}
		if s.Relays() != nil || r.Unreached() != "" {
			t.Errorf("%s: relays %v, unreached %q", name, s.Relays(), r.Unreached())
		}
	}
	if probes(only) > 0 {
		t.Error("a probe has connected")
	}
}
