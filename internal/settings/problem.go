package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// redacted replaces the value of a secret in all output.
const redacted = "(redacted)"

// Problem is one invalid setting.
type Problem struct {
	// Setting is the flag name without dashes, or an unknown key of the file.
	Setting string
	// Related names further settings that a check across settings used. A problem found by
	// [Set.Check] is dropped if one of its settings is already invalid by itself, because
	// the problem would only repeat that in other words.
	Related []string
	// Value is the invalid text, redacted for secrets. Load sets Value and Origin if a
	// Check left them empty; a Check may set a part of the value.
	Value string
	// Origin is the source of Value.
	Origin Origin
	// Reason describes the error.
	Reason string
	// Allowed describes the valid values; may be empty.
	Allowed string

	missing bool // no value to show: the setting was not given
	key     bool // Setting is a key of the file and not a flag
}

// Error returns one line with the setting, the value, its origin, the reason and the
// allowed values.
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

// Error returns one line per problem after a heading.
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

// Unwrap returns the single problems, for errors.Is and errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// sorted returns the problems in a stable order without duplicates.
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

// Suggest returns the setting that was most probably meant by a mistyped flag, key or
// environment variable, without dashes; empty if none is similar.
func (s *Set) Suggest(name string) string {
	name = strings.TrimPrefix(name, s.prefix)
	return nearest(name, s.Names())
}

// Nearest returns the candidate that was most probably meant by a mistyped name, such as a
// flag; empty if none is similar.
func Nearest(name string, candidates []string) string { return nearest(name, candidates) }

// OtherCase returns the pairs of names that differ only in case, which are probably meant to be
// one name, sorted. A name that is given twice counts once.
func OtherCase(names []string) (pairs [][2]string) {
	names = slices.Clone(names)
	slices.Sort(names)
	seen := map[string]string{} // by the name in lower case
	for _, name := range slices.Compact(names) {
		lower := strings.ToLower(name)
		if other, twice := seen[lower]; twice {
			pairs = append(pairs, [2]string{other, name})
		}
		seen[lower] = name
	}
	return pairs
}

// nearest returns the candidate nearest to name: equal except for case and separators,
// otherwise a few typing errors away, otherwise the shortest one that contains all words of
// name. Ties go to the first candidate.
func nearest(name string, candidates []string) string {
	plain := plainName(name)
	if plain == "" || len(plain) > 128 { // a name of this length is not a typing error
		return ""
	}
	best, bestDistance := "", len(plain)/3+1
	for _, candidate := range candidates {
		if distance := editDistance(plain, plainName(candidate)); distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	if best != "" {
		return best
	}
	words := strings.FieldsFunc(strings.ToLower(name), isSeparator)
	for _, candidate := range candidates {
		if containsWords(candidate, words) && (best == "" || len(candidate) < len(best)) {
			best = candidate
		}
	}
	return best
}

func isSeparator(r rune) bool { return r == '-' || r == '_' || r == '.' || r == ' ' }

func plainName(name string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), isSeparator), "")
}

func containsWords(candidate string, words []string) bool {
	parts := "-" + candidate + "-"
	for _, word := range words {
		if !strings.Contains(parts, "-"+word+"-") {
			return false
		}
	}
	return len(words) > 0
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours (optimal
// string alignment distance).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Source is the kind of source that a value came from, in rising precedence.
type Source uint8

// The sources, in rising precedence.
const (
	Default Source = iota
	File
	Environment
	Flag
)

// String returns "default", "file", "environment" or "flag".
func (s Source) String() string {
	switch s {
	case File:
		return "file"
	case Environment:
		return "environment"
	case Flag:
		return "flag"
	default:
		return "default"
	}
}

// Origin is the source of a value. The zero value means the default.
type Origin struct {
	Source Source
	// Name is the flag with its dashes, the environment variable or the path of
	// the file; empty for a default.
	Name string
	// Line is the line in the file, from 1; 0 if unknown or if the source is not a file.
	Line int
}

// String returns for example "flag --cluster", "environment RINGWAY_CLUSTER",
// "file relay.yaml:7" or "default".
func (o Origin) String() string {
	text := o.Source.String()
	if o.Name != "" {
		text += " " + o.Name
	}
	if o.Line > 0 {
		text += ":" + strconv.Itoa(o.Line)
	}
	return text
}

// MarshalText returns [Origin.String], for JSON and YAML output.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
