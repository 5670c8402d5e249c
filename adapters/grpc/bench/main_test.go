package main

import (
	"strings"
	"testing"
	"time"
)

func TestEveryPolicyIsInTheTable(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, config{servers: 4, rate: 200, turn: 100 * time.Millisecond, turns: 1, warmUp: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"round_robin", "pick_first", "weighted_round_robin", "ringway"} {
		if !strings.Contains(out.String(), policy+"  ") {
			t.Errorf("no line for %s in\n%s", policy, out.String())
		}
	}
}
