//go:build !race

package router_test

import (
	"testing"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/selection"
)

func TestAPickAllocatesNothing(t *testing.T) {
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", &moody{name: "echo-0"}, &moody{name: "echo-1"}, &moody{name: "echo-2"})
	r := c.router("relay-2", nil)
	c.knows(r, "echo", "echo-0", "echo-1", "echo-2")
	allocations := testing.AllocsPerRun(1000, func() {
		pick, err := r.Pick(t.Context(), "echo", "")
		if err != nil {
			t.Fatal(err)
		}
		pick.Done(selection.Success)
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
