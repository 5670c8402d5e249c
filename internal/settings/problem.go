package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// redacted stands for the value of a secret wherever a value is shown.
const redacted = "(redacted)"

// Problem is one invalid setting.
type Problem struct {
	// Setting is the flag name without dashes, or an unknown key of the file.
	Setting string
	// Related names further settings that a cross-field check looked at. A problem
	// found by [Set.Check] is dropped when one of its settings is already invalid by
	// itself, because it would only repeat that in other words.
	Related []string
	// Value is the offending text, redacted for secrets. Load fills in Value and
	// Origin where a Check left them empty; a Check may name a part of the value.
	Value string
	// Origin says where Value came from.
	Origin Origin
	// Reason says what is wrong.
	Reason string
	// Allowed says what would be right; may be empty.
	Allowed string

	missing bool // no value to show: the setting was not given at all
	key     bool // Setting is a key of the file and no flag
}

// Error returns one line that names the setting, the value, its origin, the
// reason and what is allowed.
func (p Problem) Error() string {
	var b strings.Builder
	if p.key {
		fmt.Fprintf(&b, "file key %q", p.Setting)
	} else {
		b.WriteString("--" + p.Setting)
		if !p.missing {
			fmt.Fprintf(&b, " %q", p.Value)
		}
	}
	if !p.missing {
		fmt.Fprintf(&b, " (%s)", p.Origin)
	}
	b.WriteString(": " + p.Reason)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	return b.String()
}

// Problems are all invalid settings found by one [Set.Load], sorted by setting.
// Use errors.As to reach them.
type Problems []Problem

// Error returns one line per problem under a heading.
func (ps Problems) Error() string {
	var b strings.Builder
	if len(ps) == 1 {
		b.WriteString("1 setting is invalid:")
	} else {
		fmt.Fprintf(&b, "%d settings are invalid:", len(ps))
	}
	for _, p := range ps {
		b.WriteString("\n  " + p.Error())
	}
	return b.String()
}

// Unwrap gives the single problems to errors.Is and errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// sorted returns the problems in their stable order, each once.
func (ps Problems) sorted() Problems {
	slices.SortFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Setting, b.Setting),
			cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Error(), b.Error()),
		)
	})
	return slices.CompactFunc(ps, func(a, b Problem) bool { return a.Error() == b.Error() })
}

// about reports whether one of the problems is about the named setting.
func (ps Problems) about(name string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Setting == name })
}
