package routing

import (
	"sync/atomic"

	"github.com/ringway/ringway/selection"
)

// Retries has the retry budget of a service. The zero value is ready to use.
type Retries struct{ budget atomic.Pointer[RetryBudget] }

// savings is how many retries a service without recent retries can make in a burst.
const savings = 500

// Budget returns the budget with this share. It is a new one only if the share has changed.
func (r *Retries) Budget(share float64) *RetryBudget {
	for {
		b := r.budget.Load()
		if b != nil && b.share == share {
			return b
		}
		made := &RetryBudget{RetryBudget: selection.NewRetryBudget(share, savings), share: share}
		made.check()
		if r.budget.CompareAndSwap(b, made) {
			return made
		}
	}
}

// RetryBudget is a selection.RetryBudget that knows when it cannot pay for a retry.
type RetryBudget struct {
	*selection.RetryBudget
	share float64
	empty atomic.Bool // the last check has found less than one retry
}

// Spend takes one retry from the budget and reports whether the budget allowed it.
func (b *RetryBudget) Spend() bool {
	paid := b.RetryBudget.Spend()
	b.check()
	return paid
}

// Affords reports whether the budget could pay for a retry now. While there is enough this is one
// load, which avoids contention.
func (b *RetryBudget) Affords() bool { return !b.empty.Load() || b.check() }

func (b *RetryBudget) check() bool {
	affords := b.RetryBudget.Spend()
	if affords {
		b.Refund()
	}
	b.empty.Store(!affords)
	return affords
}
