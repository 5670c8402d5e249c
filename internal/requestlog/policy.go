package requestlog

import (
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Policy decides which records are kept and how much of the target they contain.
type Policy struct {
	// Sample is the share of ordinary requests that is recorded, 0 to 1. Errors and requests
	// with more than one attempt are always recorded.
	Sample float64
	// Slow is the duration from which a request is always recorded. Default 0: the duration
	// does not matter.
	Slow time.Duration
	// Slowest is how many of the other requests are recorded in each ten seconds: the
	// slowest. Default 0: none.
	Slowest int
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
// hash stays XXH64.
func (s Sampler) Takes(id string) bool {
	if s.all || s.below == 0 {
		return s.all
	}
	return xxhash.Sum64String(id) < s.below
}
