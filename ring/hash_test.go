package ring_test

import (
	"testing"

	"github.com/ringway/ringway/ring"
)

// Members of different builds share positions only while these hold (RV-B2).
func TestHashesArePinned(t *testing.T) {
	const key = "rivet-envoy-test-key"
	for seed, want := range []uint64{4132758085140587655, 6235129042166707504, 17729014694824956575} {
		if got := ring.Hash(key, uint64(seed)); got != want {
			t.Errorf("Hash(%q, %d) = %d, want %d", key, seed, got, want)
		}
	}
	if got, want := ring.Hash("", 0), uint64(0xef46db3751d8e999); got != want { // XXH64's own test vector
		t.Errorf("Hash of the empty string = %#x, want %#x", got, want)
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	for _, seed := range []uint64{0, 7} {
		if n := testing.AllocsPerRun(100, func() { ring.Hash("worker-0001.example", seed) }); n != 0 {
			t.Errorf("Hash with seed %d allocates %v times", seed, n)
		}
	}
}
