package scenario

import (
	"fmt"
	"math"
	"strconv"
)

// Relation says on which side of its bound a value must stay.
type Relation string

// The relations.
const (
	AtMost  Relation = "≤"
	AtLeast Relation = "≥"
	Equals  Relation = "="
)

// Promise is something that must hold.
type Promise struct {
	// Name is the promise in words: "every worker has at least m relays".
	Name     string   `json:"name"`
	Relation Relation `json:"relation"`
	// Bound is the one of Run.Check; Run.Require brings its own.
	Bound float64 `json:"-"`
	Unit  string  `json:"unit,omitempty"`
	// Why says where the bound comes from.
	Why string `json:"why,omitempty"`
}

// Measurement is a value to hold against a promise.
type Measurement struct {
	Promise string
	Value   float64
	Bound   float64
	Where   string // the case that was measured, for the reader
}

// Verdict is the worst that was measured of a promise.
type Verdict struct {
	Promise
	Value float64 `json:"value"`
	Bound float64 `json:"bound"`
	Where string  `json:"where,omitempty"`
	// Checks is how many measurements there were. Skipped says why there were none.
	Checks  int    `json:"checks"`
	Skipped string `json:"skipped,omitempty"`
	// Side tells two runs apart that are compared: "A" or "B".
	Side string `json:"side,omitempty"`
}

// Holds reports whether the bound is kept. What is no number keeps no bound; what was
// skipped holds.
func (v Verdict) Holds() bool {
	if v.Skipped != "" {
		return true
	}
	return v.excess() <= 0
}

// excess is by how much the bound is missed, in parts of it; not above 0 when it is kept.
func (v Verdict) excess() float64 {
	over := v.Value - v.Bound
	switch v.Relation {
	case AtLeast:
		over = -over
	case Equals:
		over = math.Abs(over)
	}
	if math.IsNaN(over) {
		return math.Inf(1)
	}
	return over / max(math.Abs(v.Bound), 1e-9)
}

// String is the line that a reader needs: promise, value, bound.
func (v Verdict) String() string {
	unit := ""
	if v.Unit != "" {
		unit = " " + v.Unit
	}
	if v.Skipped != "" {
		return fmt.Sprintf("%s: not checked, %s", v.Name, v.Skipped)
	}
	text := fmt.Sprintf("%s: %s%s, promised %s %s%s", v.Name, Number(v.Value), unit, v.Relation, Number(v.Bound), unit)
	if v.Where != "" {
		text += " (" + v.Where + ")"
	}
	return text
}

// Number writes a number as short as five digits allow, whole ones exactly.
func Number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}
