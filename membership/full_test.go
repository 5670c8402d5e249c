package membership

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/trust"
)

func TestAMemberAtItsLimitSaysSoOnceAndNoLongerWhenThereIsRoom(t *testing.T) {
	out := &logtest.Log{}
	seed := start(t, func(c *Config) {
		c.ID, c.MaxMembers, c.Logger = "r1", 2, slog.New(slog.NewTextHandler(out, nil))
	})
	first := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{seed.Addr()} })
	seed.await(t, "the first", sees("r1", "w1"))
	if seed.Status().Full || testutil.ToFloat64(seed.metrics.full) != 0 {
		t.Error("it is at its limit, and has refused no member yet")
	}
	for _, id := range []string{"w2", "w3"} {
		start(t, func(c *Config) { c.ID, c.Role, c.Seeds = id, identity.RoleWorker, []string{seed.Addr()} })
	}
	procs.Await(t, "both are refused", func() bool {
		return testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, fieldTooMany)) > 1
	})
	if !seed.Status().Full || testutil.ToFloat64(seed.metrics.full) != 1 {
		t.Error("members are refused, and the status does not say so")
	}
	if n := out.Lines("raise --max-members on all members"); n != 1 {
		t.Errorf("%d lines name the setting, want 1:\n%s", n, out)
	}
	if !strings.Contains(out.String(), "max_members=2") {
		t.Errorf("the log does not name the value: %s", out)
	}
	seed.delegate.alive(first.delegate.self, false)
	if seed.Status().Full || testutil.ToFloat64(seed.metrics.full) != 0 {
		t.Error("there is room, and the status says that there is none")
	}
}

func TestMembersAreCountedByNodeWhereTheyAreProven(t *testing.T) {
	proven := trust.New(t.Context(), trust.Config{})
	for _, c := range []struct {
		guard  *trust.Guard
		living []string
		name   string
		full   bool
	}{
		{nil, []string{"a.1", "b.1"}, "c.1", false},
		{nil, []string{"a.1", "a.2", "b.1"}, "a.3", true}, // each may be another process
		{nil, []string{"a.1", "a.2", "b.1"}, "a.2", false},
		{proven, []string{"a.1", "a.2", "b.1"}, "c.1", false},
		{proven, []string{"a.1", "b.1", "c.1"}, "d.1", true},
		{proven, []string{"a.1", "b.1", "c.1"}, "a.2", false},
		{proven, []string{"a.1", "b.1", "c.1"}, "c.1", false},
	} {
		d := &delegate{guard: c.guard, limit: 3, living: make(map[string]struct{}), nodes: make(map[string]int)}
		for _, name := range append(c.living, c.living...) {
			d.alive(name, true)
		}
		if got := d.full(c.name); got != c.full {
			t.Errorf("%s next to %v, proven %v: full %v", c.name, c.living, c.guard != nil, got)
		}
		for _, name := range append(c.living, c.living...) {
			d.alive(name, false)
		}
		if len(d.living)+len(d.nodes) > 0 {
			t.Errorf("left over: %v, %v", d.living, d.nodes)
		}
	}
}
