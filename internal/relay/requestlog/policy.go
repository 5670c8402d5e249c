package requestlog

import (
	"math"
	"time"
)

// Policy decides which records are kept and how much of the target they contain.
type Policy struct {
	// Sample is the share of ordinary requests that is recorded, 0 to 1. Errors and requests
	// with more than one attempt are always recorded.
	Sample float64
	// Slow is the duration from which a request is always recorded. Default 0: the duration
	// does not matter.
	Slow time.Duration
	// Path selects how much of the target is recorded. The zero value is PathOnly.
	Path PathMode
}

// PathMode is how much of a request's target is in its record.
type PathMode string

// The modes. A query often has personal data or secrets, so it must be asked for.
const (
	PathNone PathMode = "none"
	PathOnly PathMode = "path"
	PathFull PathMode = "full"
)

// Sampler decides by the ID of a request. The zero value takes none.
type Sampler struct {
	all   bool
	below uint64
}

// NewSampler returns a Sampler that takes this share of all IDs.
func NewSampler(share float64) Sampler {
	switch {
	case share >= 1:
		return Sampler{all: true}
	case share > 0: // false for NaN
		return Sampler{below: uint64(math.Ldexp(share, 64))}
	}
	return Sampler{}
}

// Takes reports whether the ID is in the sample. Relays of all versions must agree, so the
// hash is fixed: FNV-1a with the finalizer of MurmurHash3, because the last bytes of an ID,
// a counter, hardly reach the upper bits of FNV-1a alone.
func (s Sampler) Takes(id string) bool {
	if s.all || s.below == 0 {
		return s.all
	}
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h^h>>33 < s.below
}
