package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one parameter of a scenario. The type of Default is the type of the setting:
// int, float64, bool, string, time.Duration, []int, []float64 or []string.
type Setting struct {
	Name string // lower case, digits and dashes
	Help string // the meaning, in a few words
	Unit string // of a number: "relays", "requests/s"; none for a duration
	// Default is the value without --set.
	Default any
	// Quick replaces Default with --quick; nil means Default.
	Quick any
	// Min and Max are the inclusive limits of a number or duration, and of each number of
	// a list; nil means no limit. Min and Max have the type of Default, or of one element.
	Min, Max any
	// OneOf lists the allowed values of a string, or of each string of a list; nil allows
	// all.
	OneOf []string
}

// Allowed describes the allowed values in words.
func (s Setting) Allowed() string {
	kind := map[string]string{
		"int": "a whole number", "float64": "a number", "bool": "true or false", "string": "text",
		"time.Duration": "a duration such as 30s", "[]int": "whole numbers, separated by commas",
		"[]float64": "numbers, separated by commas", "[]string": "words, separated by commas",
	}[fmt.Sprintf("%T", s.Default)]
	if len(s.OneOf) > 0 {
		kind = "one of " + strings.Join(s.OneOf, ", ")
		if _, list := s.Default.([]string); list {
			kind = "any of " + strings.Join(s.OneOf, ", ") + ", separated by commas"
		}
	}
	switch {
	case s.Min != nil && s.Max != nil:
		kind += fmt.Sprintf(" from %v to %v", s.Min, s.Max)
	case s.Min != nil:
		kind += fmt.Sprintf(" of %v or more", s.Min)
	case s.Max != nil:
		kind += fmt.Sprintf(" of at most %v", s.Max)
	}
	return kind
}

func (s Setting) validate() error {
	if !validName.MatchString(s.Name) {
		return fmt.Errorf("setting %q: a name is lower case letters, digits and dashes", s.Name)
	}
	if s.Help == "" {
		return fmt.Errorf("setting %q has no help text", s.Name)
	}
	for _, value := range []any{s.Default, s.Quick} {
		if value == nil && s.Default != nil {
			continue
		}
		if fmt.Sprintf("%T", value) != fmt.Sprintf("%T", s.Default) {
			return fmt.Errorf("setting %q: quick is %T, default %T", s.Name, value, s.Default)
		}
		back, err := s.parse(Format(value))
		if err != nil {
			return err
		}
		if Format(back) != Format(value) {
			return fmt.Errorf("setting %q: %v is read back as %v", s.Name, value, back)
		}
	}
	return nil
}

// parse parses a value of the setting's type and checks its limits.
func (s Setting) parse(text string) (any, error) {
	value, err := s.read(text)
	if err != nil {
		return nil, fmt.Errorf("%s=%q: allowed is %s", s.Name, text, s.Allowed())
	}
	return value, nil
}

var errNotAllowed = errors.New("not allowed")

func (s Setting) read(text string) (any, error) {
	switch s.Default.(type) {
	case int:
		return readNumber(s, text, strconv.Atoi)
	case float64:
		return readNumber(s, text, readFloat)
	case time.Duration:
		return readNumber(s, text, time.ParseDuration)
	case bool:
		return strconv.ParseBool(text)
	case string:
		return s.readWord(text)
	case []int:
		return readList(text, func(one string) (int, error) { return readNumber(s, one, strconv.Atoi) })
	case []float64:
		return readList(text, func(one string) (float64, error) { return readNumber(s, one, readFloat) })
	case []string:
		return readList(text, s.readWord)
	}
	return nil, fmt.Errorf("setting %q: a default of type %T", s.Name, s.Default)
}

func (s Setting) readWord(text string) (string, error) {
	if len(s.OneOf) > 0 && !slices.Contains(s.OneOf, text) {
		return "", errNotAllowed
	}
	return text, nil
}

func readFloat(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (v != v || v > 1e300 || v < -1e300) {
		return 0, errNotAllowed
	}
	return v, err
}

func readNumber[N int | float64 | time.Duration](s Setting, text string, read func(string) (N, error)) (N, error) {
	v, err := read(text)
	if err != nil {
		return 0, err
	}
	if s.Min != nil && v < s.Min.(N) || s.Max != nil && v > s.Max.(N) {
		return 0, errNotAllowed
	}
	return v, nil
}

func readList[E any](text string, read func(string) (E, error)) ([]E, error) {
	var out []E
	for one := range strings.SplitSeq(text, ",") {
		v, err := read(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// Format formats a value in the syntax of parse.
func Format(value any) string {
	switch v := value.(type) {
	case []int:
		return join(v)
	case []float64:
		return join(v)
	case []string:
		return join(v)
	}
	return fmt.Sprint(value)
}

func join[E any](list []E) string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = fmt.Sprint(e)
	}
	return strings.Join(out, ",")
}

// SplitSettings splits "a=1,b=2,3,c=x" into assignments: a piece without "=" belongs to the
// preceding list.
func SplitSettings(text string) []string {
	var out []string
	for piece := range strings.SplitSeq(text, ",") {
		if len(out) > 0 && !strings.Contains(piece, "=") {
			out[len(out)-1] += "," + piece
			continue
		}
		out = append(out, piece)
	}
	return out
}

// Values returns the value of each setting after assignments "key=value"; of several
// assignments to a key the last one counts. An unknown key is an error.
func (s Scenario) Values(quick bool, assignments []string) (map[string]any, error) {
	values := make(map[string]any, len(s.Settings))
	var names []string
	for _, setting := range s.Settings {
		names = append(names, setting.Name)
		values[setting.Name] = setting.Default
		if quick && setting.Quick != nil {
			values[setting.Name] = setting.Quick
		}
	}
	var wrong []error
	for _, a := range assignments {
		key, text, found := strings.Cut(a, "=")
		if !found {
			wrong = append(wrong, fmt.Errorf("setting %q: write key=value", a))
			continue
		}
		i := slices.Index(names, key)
		if i < 0 {
			wrong = append(wrong, fmt.Errorf("scenario %s has no setting %q: it has %s", s.Name, key, sentence(names)))
			continue
		}
		value, err := s.Settings[i].parse(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("scenario %s: %w", s.Name, err))
			continue
		}
		values[key] = value
	}
	return values, errors.Join(wrong...)
}

// sentence joins names for use in a sentence.
func sentence(names []string) string {
	switch len(names) {
	case 0:
		return "none"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
