package settings

import (
	"slices"
	"strings"
)

// List is a list setting and what it means, which is computed once, when the items are set.
type List[T any] struct {
	// Value is what the items mean. Items with problems have no part in it.
	Value T

	items    []string
	problems []Problem
	parse    func(items []string) (T, []Problem)
}

// NewList returns a list of these items. parse reports the problems of all items.
func NewList[T any](parse func(items []string) (T, []Problem), items ...string) List[T] {
	l := List[T]{parse: parse}
	l.Set(items...)
	return l
}

// Set replaces the items.
func (l *List[T]) Set(items ...string) {
	l.items = slices.Clone(items)
	l.Value, l.problems = l.parse(l.items)
}

// Items returns the items as they were set.
func (l *List[T]) Items() []string { return slices.Clone(l.items) }

// Problems returns what is wrong with the items. Load reports it.
func (l *List[T]) Problems() []Problem { return l.problems }

// Parsed declares a list whose items mean something together, such as one value for each service.
// The rules are for single items; see [Strings].
func Parsed[T any](s *Set, target *List[T], spec Spec, rules ...Rule[string]) {
	s.declare(&setting{
		Spec: spec, kind: "strings", want: "a list", allowed: allowed(rules), list: true,
		variable: &typed[List[T]]{
			target:  target,
			initial: *target,
			parseText: func(raw []string) (List[T], error) {
				return NewList(target.parse, raw...), nil
			},
			formatText: func(l List[T]) string { return strings.Join(l.items, ",") },
			rules:      func(l List[T]) error { return judgeItems(l.items, rules) },
		},
	})
	s.Check(target.Problems)
}

func judgeItems(items []string, rules []Rule[string]) error {
	for _, item := range items {
		if err := judge(item, rules); err != nil {
			return err
		}
	}
	return nil
}
