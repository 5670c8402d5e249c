package requestlog

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
)

func TestTheSampleHasItsShareAndALargerOneContainsIt(t *testing.T) {
	ids, block := NewIDs(), Block{}
	const n = 100_000
	small, large := NewSampler(0.01), NewSampler(0.3)
	inSmall, inLarge := 0, 0
	for range n {
		id := block.Next(ids)
		if large.Takes(id) {
			inLarge++
		}
		if small.Takes(id) {
			inSmall++
			if !large.Takes(id) {
				t.Fatalf("%s is only in the smaller sample", id)
			}
		}
	}
	for share, got := range map[float64]int{0.01: inSmall, 0.3: inLarge} { // six standard deviations
		if diff := math.Abs(float64(got) - share*n); diff > 6*math.Sqrt(share*(1-share)*n) {
			t.Errorf("%d of %d for a share of %v", got, n, share)
		}
	}
	if NewSampler(0).Takes("x") || NewSampler(-1).Takes("x") || NewSampler(math.NaN()).Takes("x") || !NewSampler(1).Takes("x") || !NewSampler(2).Takes("x") || (Sampler{}).Takes("x") {
		t.Error("the ends of the range")
	}
}

// Relays of different versions must agree.
func TestTheSampleIsTheSameInEveryVersion(t *testing.T) {
	half, taken := NewSampler(0.5), ""
	for i := range 32 {
		if half.Takes(fmt.Sprint("request-", i)) {
			taken += fmt.Sprint(i, " ")
		}
	}
	if want := "4 6 7 9 12 18 19 20 23 25 27 28 29 31 "; taken != want {
		t.Errorf("the sample is %q, want %q", taken, want)
	}
}

func TestIDsAreUniqueAndValid(t *testing.T) {
	ids := NewIDs()
	var mu sync.Mutex
	seen := map[string]bool{}
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			var b Block
			for range 3*blockIDs + 1 {
				id := b.Next(ids)
				mu.Lock()
				if seen[id] || !ValidID(id) {
					t.Errorf("%q", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	makers.Wait()
	if other := new(Block).Next(NewIDs()); strings.HasPrefix(other, new(Block).Next(ids)[:prefixDigits]) {
		t.Errorf("another process has the same prefix: %s", other)
	}
}

func TestOnlyShortVisibleTextIsAnID(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "~!": true, strings.Repeat("x", MaxID): true,
		"": false, "a b": false, "ü": false, "\n": false, "\x7f": false, strings.Repeat("x", MaxID+1): false,
	} {
		if ValidID(id) != want {
			t.Errorf("%q is valid: %v", id, !want)
		}
	}
}
