package scenario

import (
	"fmt"
	"math"
	"strconv"
)

// Relation is the required relation of a value to its bound.
type Relation string

// The relations.
const (
	AtMost  Relation = "≤"
	AtLeast Relation = "≥"
	Equals  Relation = "="
)

// Promise is a condition that must hold.
type Promise struct {
	// Name is the condition in words: "every worker has at least m relays".
	Name     string   `json:"name"`
	Relation Relation `json:"relation"`
	// Bound is the bound of Run.Check; a call of Run.Require has a separate bound.
	Bound float64 `json:"-"`
	Unit  string  `json:"unit,omitempty"`
	// Why is the reason of the bound.
	Why string `json:"why,omitempty"`
}

// Measurement is a value to check against a promise.
type Measurement struct {
	Promise string
	Value   float64
	Bound   float64
	Where   string // the measured case, for the reader
}

// Verdict is the worst measurement of a promise.
type Verdict struct {
	Promise
	Value float64 `json:"value"`
	Bound float64 `json:"bound"`
	Where string  `json:"where,omitempty"`
	// Checks is the number of measurements. Skipped is the reason if there were none.
	Checks  int    `json:"checks"`
	Skipped string `json:"skipped,omitempty"`
	// Side names the run in a comparison of two: "A" or "B".
	Side string `json:"side,omitempty"`
}

// Holds reports whether the value keeps its bound. NaN keeps no bound; a skipped promise
// holds.
func (v Verdict) Holds() bool {
	if v.Skipped != "" {
		return true
	}
	return v.excess() <= 0
}

// excess returns by how much the value misses its bound, relative to the bound; at most 0 if
// the value keeps the bound.
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

// String returns promise, value and bound in one line.
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

// Number formats a number with up to five digits, whole numbers exactly.
func Number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}
