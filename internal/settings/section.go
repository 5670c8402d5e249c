package settings

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Section declares a structured key of the file that has no flag and no environment
// variable, for example a list of routes. It is decoded strictly into T by the rules of
// go.yaml.in/yaml/v3 (`yaml:"…"` tags): a field that T does not have is refused, with its
// line. The checks get the decoded value; each error inside an errors.Join becomes a
// separate problem.
func Section[T any](s *Set, target *T, spec Spec, checks ...func(T) error) {
	s.declare(&setting{
		Spec: spec, kind: "section", section: true, shape: reflect.TypeFor[T](),
		variable: &section[T]{
			typed: typed[T]{
				target:     target,
				initial:    *target,
				parseText:  func([]string) (T, error) { return *target, nil },
				formatText: formatYAML[T],
				rules:      func(T) error { return nil },
			},
			checks: checks,
		},
	})
}

type section[T any] struct {
	typed[T]
	checks []func(T) error
}

// decode decodes the whole file again, into a struct with this key and a map for the rest.
// Decoding only the node would lose either strictness (a property of the decoder) or the
// line numbers.
func (v *section[T]) decode(f *file, spec Spec) Problems {
	at := func(line int, reason string) Problem {
		return Problem{Setting: spec.Name, Origin: f.origin(line), Reason: reason, key: true}
	}
	wrapper := reflect.New(reflect.StructOf([]reflect.StructField{
		{Name: "Section", Type: reflect.TypeFor[T](), Tag: reflect.StructTag(`yaml:"` + spec.Name + `"`)},
		{Name: "Rest", Type: reflect.TypeFor[map[string]yaml.Node](), Tag: `yaml:",inline"`},
	}))
	decoder := yaml.NewDecoder(bytes.NewReader(f.body))
	decoder.KnownFields(true)
	if err := decoder.Decode(wrapper.Interface()); err != nil && !errors.Is(err, io.EOF) {
		lines := []string{err.Error()}
		var typeErr *yaml.TypeError
		if errors.As(err, &typeErr) {
			lines = typeErr.Errors
		}
		var problems Problems
		for _, text := range lines {
			line, reason := splitLine(text)
			if line == 0 {
				line = f.line[spec.Name]
			}
			problems = append(problems, at(line, v.explain(reason, spec.Secret)))
		}
		return problems
	}
	decoded := wrapper.Elem().Field(0).Interface().(T)
	var problems Problems
	for _, number := range fractions(f.keys[spec.Name], reflect.TypeFor[T]()) {
		problems = append(problems, at(number.Line, "not a whole number: "+number.Value))
	}
	for _, check := range v.checks {
		for _, err := range flatten(check(decoded)) {
			problems = append(problems, at(f.line[spec.Name], err.Error()))
		}
	}
	if len(problems) == 0 {
		*v.target = decoded
	}
	return problems
}

// fractions returns the numbers with a fraction where t has a whole number. The decoder would cut
// the fraction off.
func fractions(node *yaml.Node, t reflect.Type) (found []*yaml.Node) {
	if node == nil {
		return nil
	}
	node = resolve(node)
	switch t.Kind() {
	case reflect.Pointer:
		return fractions(node, t.Elem())
	case reflect.Slice, reflect.Array:
		for _, item := range node.Content {
			found = append(found, fractions(item, t.Elem())...)
		}
	case reflect.Map, reflect.Struct:
		if node.Kind != yaml.MappingNode {
			return nil
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if of := fieldType(t, node.Content[i].Value); of != nil {
				found = append(found, fractions(node.Content[i+1], of)...)
			}
		}
	default:
		var number float64
		whole := t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
		if whole && node.ShortTag() == "!!float" && node.Decode(&number) == nil && number != math.Trunc(number) {
			found = append(found, node)
		}
	}
	return found
}

// fieldType returns the type of the values of a map, or of the field of a struct with this name in
// YAML; nil if there is none.
func fieldType(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for field := range t.Fields() {
		if of, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); of == name {
			return field.Type
		}
	}
	return nil
}

var unknownField = regexp.MustCompile(`^field (.+) not found in type `)

// explain rewords errors of the YAML decoder for people who do not know Go.
func (v *section[T]) explain(text string, secret bool) string {
	if match := unknownField.FindStringSubmatch(text); match != nil {
		known := fieldNames(reflect.TypeFor[T](), nil)
		text = "no such field: " + match[1]
		if meant := nearest(match[1], known); meant != "" {
			text += "; did you mean " + meant + "?"
		} else if len(known) > 0 {
			text += "; allowed: " + strings.Join(known, ", ")
		}
		return text
	}
	if secret {
		return "does not have the right shape"
	}
	if match := wrongType.FindStringSubmatch(text); match != nil {
		found := map[string]string{"!!seq": "a list", "!!map": "a mapping"}[match[1]]
		if found == "" {
			found = strconv.Quote(match[2])
		}
		return "want " + inWords(typeNamed(reflect.TypeFor[T](), match[3], nil)) + ", found " + found
	}
	if match := wrongTime.FindStringSubmatch(text); match != nil {
		return "want " + inWords(reflect.TypeFor[time.Time]()) + ", found " + match[1]
	}
	return text
}

// wrongType is the decoder's error for a value of another type: with its tag, the value itself unless
// it is a list or a mapping, and the wanted type.
var wrongType = regexp.MustCompile("(?s)^cannot unmarshal (!!\\w+)(?: `(.*)`)? into (.+)$")

// wrongTime is the error of package time, which the decoder passes on, with the value.
var wrongTime = regexp.MustCompile(`^parsing time ("(?:[^"\\]|\\.)*")`)

// typeNamed returns the type of this name among those that t consists of, nil if there is none.
func typeNamed(t reflect.Type, name string, seen []reflect.Type) reflect.Type {
	switch {
	case t.String() == name:
		return t
	case slices.Contains(seen, t):
		return nil
	}
	seen = append(seen, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		return typeNamed(t.Elem(), name, seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if found := typeNamed(field.Type, name, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// inWords describes the values of a type.
func inWords(t reflect.Type) string {
	switch {
	case t == nil:
		return "another kind of value"
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2026-08-01T12:00:00Z"
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 500ms or 2s"
	case t.Kind() == reflect.Pointer:
		return inWords(t.Elem())
	case t.Kind() == reflect.String:
		return "a single value"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "keys with values"
}

// fieldNames returns the YAML names of all fields reachable from t, sorted.
func fieldNames(t reflect.Type, seen []reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(seen, t) {
		return nil
	}
	seen = append(seen, t)
	var names []string
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "" && !strings.Contains(options, "inline") {
			name = strings.ToLower(field.Name)
		}
		if name != "" && name != "-" {
			names = append(names, name)
		}
		names = append(names, fieldNames(field.Type, seen)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// flatten splits joined errors.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, part := range joined.Unwrap() {
			all = append(all, flatten(part)...)
		}
		return all
	}
	return []error{err}
}

// formatYAML writes a section as YAML; empty for an empty one.
func formatYAML[T any](v T) string {
	if value := reflect.ValueOf(v); !value.IsValid() || value.IsZero() ||
		(value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0 {
		return ""
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return "(cannot be shown: " + err.Error() + ")"
	}
	return strings.TrimRight(string(text), "\n")
}
