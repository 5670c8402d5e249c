package settings

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Rule is one condition on a value. Rules are checked in order; the first that
// does not hold is reported, with what all of them together allow.
type Rule[T any] struct {
	// Allowed says in a few words what passes, for example "3 or more".
	Allowed string
	// Holds reports whether the value passes. It must not change the value.
	Holds func(T) bool
}

// AtLeast allows smallest and everything above it.
func AtLeast[T cmp.Ordered](smallest T) Rule[T] {
	return Rule[T]{
		Allowed: show(smallest) + " or more",
		Holds:   func(v T) bool { return v >= smallest },
	}
}

// Above allows everything above limit, but not limit itself.
func Above[T cmp.Ordered](limit T) Rule[T] {
	return Rule[T]{
		Allowed: "more than " + show(limit),
		Holds:   func(v T) bool { return v > limit },
	}
}

// Between allows smallest, largest and everything between them.
func Between[T cmp.Ordered](smallest, largest T) Rule[T] {
	return Rule[T]{
		Allowed: show(smallest) + " to " + show(largest),
		Holds:   func(v T) bool { return v >= smallest && v <= largest },
	}
}

// Matching allows text that the whole of pattern matches; allowed says the same
// in words.
func Matching(pattern *regexp.Regexp, allowed string) Rule[string] {
	whole := regexp.MustCompile(`^(?:` + pattern.String() + `)$`)
	return Rule[string]{Allowed: allowed, Holds: whole.MatchString}
}

// show formats a bound the way it is written in a configuration.
func show(v any) string {
	if d, ok := v.(time.Duration); ok {
		return formatDuration(d)
	}
	return fmt.Sprint(v)
}

// formatDuration writes 5m0s as 5m and 1h0m0s as 1h.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
