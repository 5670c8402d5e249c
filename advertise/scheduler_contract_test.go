package advertise

import (
	"context"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// registry is the smallest owner of entries that keeps the contract of Expire:
// renewal, graceful removal and expiry are each one step under one lock.
type owner struct {
	mu      sync.Mutex
	entries map[int]perishable
}

type perishable struct{ stale bool }

func (r *owner) renew(key int) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, was = r.entries[key]
	r.entries[key] = perishable{}
	return was
}

func (r *owner) remove(key int) (didExpire bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, didExpire = r.entries[key]
	delete(r.entries, key)
	return didExpire
}

func (r *owner) expire(_ context.Context, key int) (checkOutcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, there := r.entries[key]
	switch {
	case !there:
		return checkAlready, nil
	case !e.stale:
		return checkFresh, nil
	}
	delete(r.entries, key)
	return checkExpired, nil
}

// Whatever the interleaving of readers, graceful removals and renewals: every
// entry is reported removed exactly once, by one of the two, and an entry that
// was never stale is never expired.
func TestOfExpiryAndGracefulRemovalExactlyOneReportsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 8
		owner := &owner{entries: map[int]perishable{}}
		staleAtFirst := rapid.SliceOfN(rapid.Bool(), keys, keys).Draw(t, "stale")
		for key, stale := range staleAtFirst {
			owner.entries[key] = perishable{stale}
		}
		var mu sync.Mutex
		born, expired, gracefully := [keys]int{}, [keys]int{}, [keys]int{}
		for key := range born {
			born[key] = 1
		}
		note := func(counts *[keys]int, key int) {
			mu.Lock()
			counts[key]++
			mu.Unlock()
		}
		s, err := newScheduler(schedulerConfig[int]{MaxConcurrent: 4, MaxPending: 64, Expire: func(ctx context.Context, key int) (checkOutcome, error) {
			outcome, err := owner.expire(ctx, key)
			if outcome == checkExpired {
				note(&expired, key)
			}
			return outcome, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running, actors sync.WaitGroup
		running.Go(func() { _ = s.run(ctx) })
		for range 3 {
			steps := rapid.SliceOfN(rapid.IntRange(0, 3*keys-1), 0, 40).Draw(t, "steps")
			actors.Go(func() {
				for _, step := range steps {
					switch key := step % keys; step / keys {
					case 0:
						s.observe(key)
					case 1:
						if owner.remove(key) {
							note(&gracefully, key)
						}
					case 2:
						if !owner.renew(key) {
							note(&born, key)
						}
					}
				}
			})
		}
		actors.Wait()
		cancel()
		running.Wait()
		for key := range keys {
			left := 0
			if _, there := owner.entries[key]; there {
				left = 1
			}
			if born[key] != expired[key]+gracefully[key]+left {
				t.Fatalf("key %d came %d times, was expired %d and removed %d times, and %d is left", key, born[key], expired[key], gracefully[key], left)
			}
			if !staleAtFirst[key] && expired[key] > 0 {
				t.Fatalf("key %d was never stale and was expired", key)
			}
		}
	})
}
