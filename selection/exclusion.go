package selection

// exclusionSize covers the four endpoints that can fail before the fifth and
// last attempt, with room to spare.
const exclusionSize = 8

// Exclusion is the set of endpoints that one request has already tried. It
// blames nobody outside this request. The zero value is empty and ready; it is
// not safe for concurrent use and never allocates.
type Exclusion struct {
	tried [exclusionSize]*state
	n     int
}

// Add excludes the endpoint of p. The set remembers the last eight.
func (e *Exclusion) Add(p Pick) {
	if p.state == nil || e.contains(p.state) {
		return
	}
	e.tried[e.n%exclusionSize] = p.state
	e.n++
}

// Len returns how many endpoints are excluded. A nil Exclusion is empty.
func (e *Exclusion) Len() int {
	if e == nil {
		return 0
	}
	return min(e.n, exclusionSize)
}

// Reset empties the set.
func (e *Exclusion) Reset() { *e = Exclusion{} }

func (e *Exclusion) contains(s *state) bool {
	if e == nil {
		return false
	}
	for _, t := range e.tried[:e.Len()] {
		if t == s {
			return true
		}
	}
	return false
}
