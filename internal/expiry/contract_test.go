package expiry_test

import (
	"context"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/expiry"
)

// registry is the smallest owner of entries that keeps the contract of Expire:
// renewal, graceful removal and expiry are each one step under one lock.
type registry struct {
	mu      sync.Mutex
	entries map[int]entry
}

type entry struct{ stale bool }

func (r *registry) renew(key int) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, was = r.entries[key]
	r.entries[key] = entry{}
	return was
}

func (r *registry) remove(key int) (didExpire bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, didExpire = r.entries[key]
	delete(r.entries, key)
	return didExpire
}

func (r *registry) expire(_ context.Context, key int) (expiry.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, there := r.entries[key]
	switch {
	case !there:
		return expiry.Already, nil
	case !e.stale:
		return expiry.Fresh, nil
	}
	delete(r.entries, key)
	return expiry.Expired, nil
}

// Whatever the interleaving of readers, graceful removals and renewals: every
// entry is reported removed exactly once, by one of the two, and an entry that
// was never stale is never expired.
func TestOfExpiryAndGracefulRemovalExactlyOneReportsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 8
		owner := &registry{entries: map[int]entry{}}
		staleAtFirst := rapid.SliceOfN(rapid.Bool(), keys, keys).Draw(t, "stale")
		for key, stale := range staleAtFirst {
			owner.entries[key] = entry{stale}
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
		s, err := expiry.New(expiry.Config[int]{MaxConcurrent: 4, MaxPending: 64, Expire: func(ctx context.Context, key int) (expiry.Outcome, error) {
			outcome, err := owner.expire(ctx, key)
			if outcome == expiry.Expired {
				note(&expired, key)
			}
			return outcome, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running, actors sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		for range 3 {
			steps := rapid.SliceOfN(rapid.IntRange(0, 3*keys-1), 0, 40).Draw(t, "steps")
			actors.Go(func() {
				for _, step := range steps {
					switch key := step % keys; step / keys {
					case 0:
						s.Observe(key)
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
