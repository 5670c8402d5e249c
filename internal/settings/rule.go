package settings

import (
	"cmp"
	"regexp"
)

// Rule is one condition on a value. Rules are checked in order; the error is about the
// first rule that the value breaks, and lists what all rules together allow.
type Rule[T any] struct {
	// Allowed describes the valid values in a few words, for example "3 or more".
	Allowed string
	// Holds reports whether the value is valid. It must not change the value.
	Holds func(T) bool

	bounds bound // of numbers
}

// bound limits the numbers of a JSON schema.
type bound struct{ least, most, above *float64 }

// bounds returns the bounds of all rules together.
func bounds[T any](rules []Rule[T]) (all bound) {
	for _, rule := range rules {
		all.least, all.most, all.above = cmp.Or(rule.bounds.least, all.least), cmp.Or(rule.bounds.most, all.most), cmp.Or(rule.bounds.above, all.above)
	}
	return all
}

// number returns v for a bound; nil if v is no number.
func number(v any) *float64 {
	switch n := v.(type) {
	case int:
		f := float64(n)
		return &f
	case float64:
		return &n
	}
	return nil
}

// AtLeast allows smallest and everything above it.
func AtLeast[T cmp.Ordered](smallest T) Rule[T] {
	return Rule[T]{
		Allowed: show(smallest) + " or more",
		Holds:   func(v T) bool { return v >= smallest },
		bounds:  bound{least: number(smallest)},
	}
}

// Above allows everything above limit, but not limit itself.
func Above[T cmp.Ordered](limit T) Rule[T] {
	return Rule[T]{
		Allowed: "more than " + show(limit),
		Holds:   func(v T) bool { return v > limit },
		bounds:  bound{above: number(limit)},
	}
}

// Between allows smallest, largest and everything between them.
func Between[T cmp.Ordered](smallest, largest T) Rule[T] {
	return Rule[T]{
		Allowed: show(smallest) + " to " + show(largest),
		Holds:   func(v T) bool { return v >= smallest && v <= largest },
		bounds:  bound{least: number(smallest), most: number(largest)},
	}
}

// Matching allows text that matches pattern as a whole; allowed describes the pattern in
// words.
func Matching(pattern *regexp.Regexp, allowed string) Rule[string] {
	whole := regexp.MustCompile(`^(?:` + pattern.String() + `)$`)
	return Rule[string]{Allowed: allowed, Holds: whole.MatchString}
}
