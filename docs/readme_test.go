package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/affinity"
)

// A newcomer reads the README to its end, and its first figures are those of the plan.
func TestTheReadmeIsShortAndItsFiguresAreThoseOfThePlan(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 90 {
		t.Errorf("the README has %d lines, at most 90 are read", lines)
	}
	const relays, workers = 20, 500
	names := func(kind string, n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("%s-%d", kind, i))
		}
		return ids
	}
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service: "billing", Relays: affinity.Relays(names("relay", relays)), Workers: affinity.Workers(names("worker", workers)),
		RelaysPerService: relays, Minimums: affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := plan.Coverage()
	if c.Min != 3 || c.Max != 3 || c.Connections != 1500 {
		t.Errorf("%d to %d relays per worker, %d connections", c.Min, c.Max, c.Connections)
	}
	for i := range relays {
		if a, err := plan.Assignments(i); err != nil || len(a) != 75 {
			t.Errorf("relay %d has %d workers: %v", i, len(a), err)
		}
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	for _, figure := range []string{"each of 20 relays", "each of 500 workers", "10,000 connections", "**1,500**: 75 for each relay, 3 for each worker"} {
		if !strings.Contains(flat, figure) {
			t.Errorf("the README does not say %q", figure)
		}
	}
}
