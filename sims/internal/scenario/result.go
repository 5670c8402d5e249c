package scenario

import (
	"errors"
	"fmt"
)

// Result is what one run has shown.
type Result struct {
	Scenario string
	Asks     string
	Seed     uint64
	Quick    bool
	Settings []Value
	Tables   []*Table
	Plots    []*Plot
	Verdicts []Verdict
}

// Value is a setting as it was in a run.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Unit  string `json:"unit,omitempty"`
	Help  string `json:"help,omitempty"`
}

// Violations are the promises that do not hold.
func (r *Result) Violations() []Verdict {
	var out []Verdict
	for _, v := range r.Verdicts {
		if !v.Holds() {
			out = append(out, v)
		}
	}
	return out
}

// Table returns the table of a name, or nil.
func (r *Result) Table(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (r *Result) validate() error {
	var wrong []error
	names := map[string]bool{}
	for _, t := range r.Tables {
		wrong = append(wrong, t.validate())
		if names["table "+t.Name] {
			wrong = append(wrong, fmt.Errorf("two tables are called %q", t.Name))
		}
		names["table "+t.Name] = true
	}
	for _, p := range r.Plots {
		wrong = append(wrong, p.validate())
		if names["plot "+p.Name] {
			wrong = append(wrong, fmt.Errorf("two plots are called %q", p.Name))
		}
		names["plot "+p.Name] = true
	}
	for _, v := range r.Verdicts {
		if v.Checks == 0 && v.Skipped == "" {
			wrong = append(wrong, fmt.Errorf("the promise %q was neither checked nor skipped", v.Name))
		}
	}
	return errors.Join(wrong...)
}
