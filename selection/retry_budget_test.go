package selection

import (
	"fmt"
	"sync"
	"testing"
)

const budgetSavings = 100

func spendBudget(b *RetryBudget) (n int) {
	for b.Spend() {
		n++
	}
	return n
}

func TestRetriesAreAShareOfTheRequestsOnceTheSavingsAreSpent(t *testing.T) {
	for share, want := range map[float64]int{0.2: 200, 1: 1000, 0.001: 1} {
		b := NewRetryBudget(share, budgetSavings)
		if n := spendBudget(b); n != budgetSavings {
			t.Errorf("%v: %d retries were saved up, want %d", share, n, budgetSavings)
		}
		retries := 0
		for range 1000 {
			b.Earn()
			if b.Spend() {
				retries++
			}
		}
		if retries != want {
			t.Errorf("%v: %d retries for 1000 requests, want %d", share, retries, want)
		}
	}
}

func TestNoShareMeansNoRetries(t *testing.T) {
	for _, share := range []float64{0, -1, 0.0009} {
		b := NewRetryBudget(share, budgetSavings)
		b.Earn()
		if b.Spend() {
			t.Errorf("%v: a retry without a budget", share)
		}
	}
}

func TestSavingsAreBounded(t *testing.T) {
	b := NewRetryBudget(1, budgetSavings)
	for range 10 * budgetSavings {
		b.Earn()
	}
	if n := spendBudget(b); n > budgetSavings+1 {
		t.Errorf("%d retries saved up, want at most %d", n, budgetSavings)
	}
}

func TestNoTokenIsSpentTwice(t *testing.T) {
	b := NewRetryBudget(0.5, budgetSavings)
	var all sync.WaitGroup
	spent := make([]int, 8)
	for i := range spent {
		all.Go(func() { spent[i] = spendBudget(b) })
	}
	all.Wait()
	total := 0
	for _, n := range spent {
		total += n
	}
	// Two that ask for the last token concurrently may both be refused; it then stays.
	if total += spendBudget(b); total != budgetSavings {
		t.Errorf("%d of %d tokens were spent", total, budgetSavings)
	}
}

func TestARetryThatWasNotMadeCostsNothing(t *testing.T) {
	b := NewRetryBudget(0.5, budgetSavings)
	for range 3 * budgetSavings {
		if !b.Spend() {
			t.Fatal("refused although all was given back")
		}
		b.Refund()
	}
	if n := spendBudget(b); n != budgetSavings {
		t.Errorf("%d retries are left, want %d", n, budgetSavings)
	}
}

// Every request fails, and every caller would try again.
func ExampleRetryBudget() {
	retries := NewRetryBudget(0.2, 3)
	attempts := 0
	for range 100 {
		retries.Earn()
		attempts++
		if retries.Spend() {
			attempts++
		}
	}
	fmt.Printf("100 requests, %d attempts\n", attempts)
	// Output: 100 requests, 122 attempts
}
