package routing_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/routing"
)

// moves counts the sessions above the shares.
func moves(of []routing.Holding, shares []int) (n int) {
	for i, h := range of {
		n += max(h.Sessions-shares[i], 0)
	}
	return n
}

func TestTheSharesOfSessionsFollowTheWeightsWithTheFewestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := make([]routing.Holding, rapid.IntRange(1, 7).Draw(t, "workers"))
		total, weights := 0, 0
		for i := range of {
			w := rapid.IntRange(1, 12).Draw(t, "weight")
			of[i] = routing.Holding{Weight: float64(w), Sessions: rapid.IntRange(0, 60).Draw(t, "sessions")}
			total += of[i].Sessions
			weights += w
		}
		got := routing.FairShares(of, total)
		// The reference tries every way to round the exact shares.
		best := -1
		var try func(i, left int, shares []int)
		try = func(i, left int, shares []int) {
			if i == len(of) {
				if n := moves(of, shares); left == 0 && (best < 0 || n < best) {
					best = n
				}
				return
			}
			part := total * int(of[i].Weight)
			try(i+1, left-part/weights, append(shares, part/weights))
			if part%weights > 0 {
				try(i+1, left-part/weights-1, append(shares, part/weights+1))
			}
		}
		try(0, total, nil)
		sum := 0
		for i, share := range got {
			sum += share
			if low := total * int(of[i].Weight) / weights; share < low || share > (total*int(of[i].Weight)+weights-1)/weights {
				t.Errorf("the share %d of weight %v of %d and %d sessions", share, of[i].Weight, weights, total)
			}
		}
		if n := moves(of, got); sum != total || n != best {
			t.Errorf("%+v: the shares %v have the sum %d of %d and %d moves, the fewest are %d", of, got, sum, total, n, best)
		}
	})
}

func TestTheSharesOfSessionsKeepWhatIsFixedAndTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := make([]routing.Holding, rapid.IntRange(1, 7).Draw(t, "workers"))
		total, room := 0, 0
		for i := range of {
			h := &of[i]
			h.Weight = float64(rapid.IntRange(0, 5).Draw(t, "weight"))
			h.Sessions = rapid.IntRange(0, 40).Draw(t, "sessions")
			h.Fixed = rapid.IntRange(0, h.Sessions).Draw(t, "fixed")
			h.Limit = rapid.IntRange(0, 60).Draw(t, "limit")
			if h.Weight == 0 { // not counted: see Rebalance
				h.Sessions, h.Fixed = 0, 0
				continue
			}
			total += h.Sessions
			switch {
			case h.Limit == 0:
				room += 1 << 30
			default:
				room += max(h.Limit, h.Fixed)
			}
		}
		got := routing.FairShares(of, total)
		sum := 0
		for i, h := range of {
			sum += got[i]
			if got[i] < h.Fixed || h.Limit > 0 && room >= total && got[i] > max(h.Limit, h.Fixed) {
				t.Errorf("share %d of %+v", got[i], h)
			}
			// No session more would be fairer at i and one less at j.
			for j, other := range of {
				if h.Weight > 0 && other.Weight > 0 && (h.Limit == 0 || got[i] < h.Limit || room < total) && got[j] > other.Fixed &&
					float64(got[i]+1)/h.Weight <= float64(got[j]-1)/other.Weight*(1-1e-9) {
					t.Errorf("share %d of %+v, and %d of %+v", got[i], h, got[j], other)
				}
			}
		}
		if sum != total {
			t.Errorf("%+v: %v have the sum %d of %d", of, got, sum, total)
		}
	})
}

func TestTheSharesOfSessionsOfWorkersThatAreAlike(t *testing.T) {
	for _, c := range []struct{ sessions, want []int }{
		{[]int{45, 27, 0}, []int{24, 24, 24}}, {[]int{24, 24, 24, 0}, []int{18, 18, 18, 18}},
		{[]int{25, 24, 24}, []int{25, 24, 24}}, {[]int{0, 0, 73}, []int{24, 24, 25}}, {[]int{0, 0}, []int{0, 0}}, {nil, []int{}},
	} {
		of, total := make([]routing.Holding, len(c.sessions)), 0
		for i, n := range c.sessions {
			of[i], total = routing.Holding{Weight: 0.25, Sessions: n}, total+n
		}
		if got := routing.FairShares(of, total); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.sessions, got, c.want)
		}
	}
}
