package settings

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Draft is the version of JSON Schema that [Set.WriteSchema] writes: the one that the language
// server of YAML for editors knows best.
const Draft = "http://json-schema.org/draft-07/schema#"

// schema is the part of JSON Schema that describes a configuration file. A bound or a pattern
// concerns only values of its type.
type schema struct {
	Description string   `json:"description,omitempty"`
	Default     any      `json:"default,omitempty"`
	Type        []string `json:"type,omitempty"`
	Enum        []any    `json:"enum,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	Minimum     *float64 `json:"minimum,omitempty"`
	Maximum     *float64 `json:"maximum,omitempty"`
	Above       *float64 `json:"exclusiveMinimum,omitempty"`
	Items       *schema  `json:"items,omitempty"`

	Properties map[string]*schema `json:"properties,omitempty"`
	Additional any                `json:"additionalProperties,omitempty"` // false or a schema
}

// WriteSchema writes a JSON schema of the configuration file, by which editors complete, explain
// and check it. The schema accepts what Load accepts, and refuses unknown keys and values of a
// wrong type. What only a rule refuses, it may accept.
func (s *Set) WriteSchema(w io.Writer) error {
	var properties, required []string
	for _, st := range s.settings {
		if st.noFile {
			continue
		}
		properties = append(properties, fmt.Sprintf("    %q: %s", st.Name, inJSON(st.schema())))
		if st.section && st.Required {
			required = append(required, st.Name)
		}
	}
	slices.Sort(properties)
	more := ""
	if len(required) > 0 {
		more = "\n  \"required\": " + inJSON(required) + ","
	}
	// One line for each setting, so that a change of one is one line of a diff.
	_, err := fmt.Fprintf(w, "{\n  \"$schema\": %q,\n  \"title\": %q,\n  \"type\": [\"object\", \"null\"],%s\n  \"additionalProperties\": false,\n  \"properties\": {\n%s\n  }\n}\n",
		Draft, "Ringway: "+s.name, more, strings.Join(properties, ",\n"))
	if err != nil {
		return fmt.Errorf("write a JSON schema: %w", err)
	}
	return nil
}

func inJSON(value any) string {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	_ = out.Encode(value) // a schema and texts: nothing that JSON cannot hold
	return strings.TrimSpace(b.String())
}

// The patterns of the texts that the built-in kinds parse.
const (
	intPattern   = `^\s*[-+]?[0-9]+\s*$`
	countPattern = `^\s*(\+?[0-9]+|-0+)\s*$`  // 0 or more
	manyPattern  = `^\s*\+?0*[1-9][0-9]*\s*$` // 1 or more
	floatPattern = `^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$`
	boolPattern  = `^\s*([tT][rR][uU][eE]|[yY][eE][sS]|[oO][nN]|1|[fF][aA][lL][sS][eE]|[nN][oO]|[oO][fF][fF]|0)\s*$`
	portPattern  = `0*([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`
	// Empty is not set.
	addressPattern = `^\s*$|^\s*([^\]\[\s:/\\@?#,"']*|\[[^\]\[\s/\\@?#,"']*\]):` + portPattern + `\s*$`
)

// DurationPattern is the [Kind] Pattern of a duration.
const DurationPattern = `^\s*[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)\s*$`

// DatePattern is the pattern of a time in the file, which may be a date.
const DatePattern = `^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?$`

// schema describes the value of one key. A null is allowed and counts as not given.
func (st *setting) schema() *schema {
	if st.section {
		s := shapeSchema(st.shape)
		s.Description = st.Usage
		if st.Required {
			s.Type = slices.DeleteFunc(s.Type, func(kind string) bool { return kind == "null" })
		}
		return s
	}
	s := &schema{Description: st.Usage, Minimum: st.bounds.least, Maximum: st.bounds.most, Above: st.bounds.above}
	if !st.Secret && st.DefaultText == "" {
		s.Default = st.initialJSON()
	} else if st.DefaultText != "" {
		s.Description += "; default: " + st.DefaultText
	}
	if len(st.values) == 0 {
		s.Pattern = st.textPattern()
	}
	scalar := []string{"string", "number", "boolean"}
	zero, one := 0.0, 1.0
	switch {
	case len(st.values) > 0:
		for _, text := range st.values {
			s.Enum = append(s.Enum, text)
			if b, err := strconv.ParseBool(text); err == nil {
				s.Enum = append(s.Enum, b)
			}
		}
		s.Enum = append(s.Enum, nil)
		return s
	case st.list:
		s.Type, s.Items = append([]string{"array"}, scalar...), &schema{Type: scalar}
	case st.kind == "bool":
		s.Type, s.Minimum, s.Maximum = []string{"boolean", "string", "integer"}, &zero, &one
	case st.kind == "int":
		s.Type = []string{"integer", "string"}
	case st.kind == "share":
		s.Type, s.Minimum = []string{"integer", "string"}, &zero
	case st.kind == "float":
		s.Type = []string{"number", "string"}
	case st.kind == "duration", st.kind == "time":
		s.Type, s.Minimum, s.Maximum = []string{"string", "integer"}, &zero, &zero
	case st.kind == "address":
		s.Type = []string{"string"}
	default:
		s.Type = scalar
	}
	s.Type = append(s.Type, "null")
	return s
}

// textPattern is a regular expression of ECMAScript for the texts that have the type of the
// setting; empty for any text.
func (st *setting) textPattern() string {
	switch {
	case len(st.values) > 0:
		return `^\s*(` + strings.Join(st.values, "|") + `)\s*$`
	case st.pattern != "":
		return st.pattern
	case st.kind == "int" && st.bounds.least != nil && *st.bounds.least >= 1:
		return manyPattern
	case st.kind == "int" && st.bounds.least != nil && *st.bounds.least >= 0:
		return countPattern
	}
	return map[string]string{"bool": boolPattern, "int": intPattern, "float": floatPattern, "duration": DurationPattern, "address": addressPattern}[st.kind]
}

// VariablePattern returns a regular expression for the environment variable of the named setting:
// values that do not match are refused. Empty, which means not given, matches.
func (s *Set) VariablePattern(name string) string {
	st := s.byName[name]
	if st == nil || st.textPattern() == "" {
		return ""
	}
	return "^$|" + st.textPattern()
}

// initialJSON is the default as a value of JSON; nil if there is none.
func (st *setting) initialJSON() any {
	var value any
	if text := st.initialYAML(); text == "" || yaml.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	return value
}

var (
	durationType    = reflect.TypeFor[time.Duration]()
	timeType        = reflect.TypeFor[time.Time]()
	unmarshalerType = reflect.TypeFor[yaml.Unmarshaler]()
)

// shapeSchema describes what go.yaml.in/yaml/v3 decodes strictly into a value of type t.
func shapeSchema(t reflect.Type) *schema {
	switch {
	case reflect.PointerTo(t).Implements(unmarshalerType):
		return &schema{}
	case t == durationType:
		return &schema{Type: []string{"string", "null"}, Pattern: DurationPattern}
	case t == timeType:
		return &schema{Type: []string{"string", "null"}, Pattern: DatePattern}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeSchema(t.Elem())
	case reflect.Slice:
		return &schema{Type: []string{"array", "null"}, Items: shapeSchema(t.Elem())}
	case reflect.Map:
		return &schema{Type: []string{"object", "null"}, Additional: shapeSchema(t.Elem())}
	case reflect.Struct:
		s := &schema{Type: []string{"object", "null"}, Properties: map[string]*schema{}, Additional: false}
		for i := range t.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if field.IsExported() && name != "" && name != "-" {
				s.Properties[name] = shapeSchema(field.Type)
			}
		}
		return s
	case reflect.String:
		return &schema{Type: []string{"string", "number", "boolean", "null"}}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return &schema{Type: []string{"integer", "null"}}
	}
	return &schema{}
}
