package strategy

import (
	"cmp"
	"slices"
)

// Decision tells how a pick would go, for people.
type Decision struct {
	// Strategy is the strategy's specification.
	Strategy string
	// Key is the request's.
	Key string
	// Winner is the endpoint picked, nil when Err says why there is none.
	Winner *Endpoint
	Err    error
	// Rule is one sentence: what made the winner win.
	Rule string
	// Measure says what Candidate.Score is.
	Measure string
	// Candidates are the endpoints looked at, in the order of preference where there is
	// one, else in that of looking.
	Candidates []Candidate
}

// Candidate is one endpoint that was looked at.
type Candidate struct {
	ID, Node string
	// Score is what endpoints are compared by; Decision.Measure says what it is.
	Score float64
	// Note says what became of the candidate.
	Note string
}

// consider adds a candidate. On nil, which is a pick and no explanation, it does
// nothing.
func (d *Decision) consider(e *Endpoint, score float64, note string) {
	if d != nil {
		d.Candidates = append(d.Candidates, Candidate{e.ID, e.Node, score, note})
	}
}

// rank sorts the candidates by falling score.
func (d *Decision) rank() {
	if d != nil {
		slices.SortStableFunc(d.Candidates, func(a, b Candidate) int { return cmp.Compare(b.Score, a.Score) })
	}
}

// Notes of candidates.
const (
	noteUsable     = "usable"
	noteExcluded   = "excluded by the request"
	noteStale      = "stale"
	noteAlready    = "sampled already"
	noteUnmeasured = "not connected to yet"
)

func noteOf(excluded bool) string {
	if excluded {
		return noteExcluded
	}
	return noteUsable
}
