package routing_test

import (
	"testing"

	"github.com/ringway/ringway/internal/routing"
)

func TestARetryBudgetLastsUntilItsShareChanges(t *testing.T) {
	var r routing.Retries
	first := r.Budget(0.5)
	for first.Spend() {
	}
	if r.Budget(0.5) != first || first.Affords() {
		t.Error("the same share has filled the budget")
	}
	if second := r.Budget(0.25); second == first || !second.Affords() || r.Budget(0.25) != second {
		t.Error("another share has no budget of its own")
	}
	if r.Budget(0).Affords() {
		t.Error("a share of 0 pays for a retry")
	}
}

func TestABudgetAffordsARetryExactlyIfItWouldPayForOne(t *testing.T) {
	b := new(routing.Retries).Budget(0.25)
	n := 0
	for b.Affords() {
		if !b.Spend() {
			t.Fatal("it does not pay for what it affords")
		}
		n++
	}
	if b.Spend() || n == 0 {
		t.Errorf("after %d retries it pays for one that it does not afford", n)
	}
	for i := range 4 {
		if b.Affords() {
			t.Errorf("it affords a retry after %d requests", i)
		}
		b.Earn()
	}
	if !b.Affords() {
		t.Error("it affords no retry after 4 requests")
	}
	if b.Spend(); b.Affords() {
		t.Error("it affords a second retry")
	}
	if b.Refund(); !b.Affords() {
		t.Error("it does not afford what was refunded")
	}
}
