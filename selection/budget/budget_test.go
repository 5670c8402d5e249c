package budget

import (
	"sync"
	"testing"
)

const savings = 100

func spendAll(b *Budget) (n int) {
	for b.Spend() {
		n++
	}
	return n
}

func TestRetriesAreAShareOfTheRequestsOnceTheSavingsAreSpent(t *testing.T) {
	for share, want := range map[float64]int{0.2: 200, 1: 1000, 0.001: 1} {
		b := New(share, savings)
		if n := spendAll(b); n != savings {
			t.Errorf("%v: %d retries were saved up, want %d", share, n, savings)
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
		b := New(share, savings)
		b.Earn()
		if b.Spend() {
			t.Errorf("%v: a retry without a budget", share)
		}
	}
}

func TestSavingsAreBounded(t *testing.T) {
	b := New(1, savings)
	for range 10 * savings {
		b.Earn()
	}
	if n := spendAll(b); n > savings+1 {
		t.Errorf("%d retries saved up, want at most %d", n, savings)
	}
}

func TestNoTokenIsSpentTwice(t *testing.T) {
	b := New(0.5, savings)
	var all sync.WaitGroup
	spent := make([]int, 8)
	for i := range spent {
		all.Go(func() { spent[i] = spendAll(b) })
	}
	all.Wait()
	total := 0
	for _, n := range spent {
		total += n
	}
	// Two that ask for the last token at once may both be refused; it then stays.
	if total += spendAll(b); total != savings {
		t.Errorf("%d of %d tokens were spent", total, savings)
	}
}

func TestARetryThatWasNotMadeCostsNothing(t *testing.T) {
	b := New(0.5, savings)
	for range 3 * savings {
		if !b.Spend() {
			t.Fatal("refused although all was given back")
		}
		b.Refund()
	}
	if n := spendAll(b); n != savings {
		t.Errorf("%d retries are left, want %d", n, savings)
	}
}
