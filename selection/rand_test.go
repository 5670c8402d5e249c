package selection

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheSameRandomSourceMakesTheSamePicks(t *testing.T) {
	picks := func(seed uint64) (ids []string) {
		cfg := DefaultConfig()
		cfg.Rand = rand.NewPCG(seed, 0).Uint64
		b, err := NewBalancer[any](cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Update(rangeOf(20), 0); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			p, err := b.Pick(0, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, p.ID())
		}
		return ids
	}
	if a, b := picks(1), picks(1); !slices.Equal(a, b) {
		t.Errorf("one seed picked %v, then %v", a, b)
	}
	if a, b := picks(1), picks(2); slices.Equal(a, b) {
		t.Errorf("two seeds picked the same: %v", a)
	}
}
