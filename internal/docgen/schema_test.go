package docgen_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
)

// values are tried for every setting: some are right, some have the wrong type.
var values = []string{
	"", "null", "0", "5", "-3", "2.5", `"3"`, `"2.5"`, "true", "yes", `"off"`, "maybe",
	"30s", "1h30m", `"30"`, "10%", "auto", "debug", "gate",
	"10.0.0.1:7400", `":7400"`, `"[::1]:7400"`, `"::1"`, "nowhere", `"h:99999"`, "unix:/run/x.sock", "a/b",
	"[]", "[a, 3]", "[[a]]", "[null]", "{a: b}", "{}",
	"[{service: b, host: shop.test}]", "[{service: b, host: shop.test, headers: {x: 1}}]", "[{sevrice: b}]", "[{service: [b]}]", "[{headers: [x]}]", "{service: b}",
	"[{caller: c, service: '*', until: 2036-01-02T00:00:00Z}]", "[{caller: c, service: '*', until: soon}]", "[{caller: c, service: '*', until: [x]}]",
	"[{name: a, address: '127.0.0.1:1', weight: 3, tags: [x], policy: {retry: never}, check: {kind: tcp, interval: 2s, rise: 2}}]",
	"[{name: a, address: '127.0.0.1:1', weight: heavy}]", "[{name: a, address: '127.0.0.1:1', tags: x}]",
	"[{name: a, address: '127.0.0.1:1', check: tcp}]", "[{name: a, address: '127.0.0.1:1', check: {kind: tcp, interval: 2}}]",
	"[{name: a, address: '127.0.0.1:1', check: {kind: tcp, interval: often}}]", "[{name: a, address: '127.0.0.1:1', check: {kind: tcp, rise: often}}]",
	"[{name: a, address: '127.0.0.1:1', check: {kind: tcp, rise: 2.5}}]", "[{name: a, address: '127.0.0.1:1', weight: 2.5}]", "[{name: a, address: '127.0.0.1:1', weight: 3.0, version: 2.5}]",
}

// wrongType are the reasons of a refusal that is about the type of a value. Other reasons are about
// what the value means, which a schema need not know.
var wrongType = []string{
	"want a single value, found a list", "want a single value, found a mapping", "want a list or a single value",
	"an item of the list must be a single value", "not a whole number", "not a number", "neither true nor false",
	"the unit is missing", "not a duration", "not host:port", "the port is missing", "needs brackets", "not a number from 0 to 65535",
	"neither a duration nor a percentage", "neither auto nor a number nor a percentage", "neither auto nor true nor false",
	"want keys with values, found", "want a list, found", "want a whole number, found", "want a time such as", "want a duration such as", "no such field", "required; give it in the file",
}

func TestTheSchemaAcceptsWhatLoadsAndRefusesWhatHasTheWrongType(t *testing.T) {
	hit := map[string]bool{}
	for name, declare := range map[string]func() *settings.Set{
		"relay": func() *settings.Set {
			set, s := settings.New("relay", "RINGWAY"), relay.DefaultSettings()
			s.Declare(set)
			return set
		},
		"worker": func() *settings.Set {
			set, s := settings.New("worker", "RINGWAY"), worker.DefaultSettings()
			s.Declare(set)
			return set
		},
		"services file": worker.ServicesFile,
	} {
		schema := schemaOf(t, declare())
		set := declare()
		for _, v := range declare().Values() {
			if v.Name == "config" {
				continue
			}
			for _, value := range values {
				file := v.Name + ": " + value + "\n"
				reasons := refusals(set, v.Name, file)
				err := check(schema, document(t, file))
				if len(reasons) == 0 && err != nil {
					t.Errorf("%s: %q is valid, and the schema refuses it: %v", name, file, err)
				}
				for _, reason := range reasons {
					for _, wrong := range wrongType {
						if !strings.Contains(reason, wrong) || v.Type == "strings" && !strings.Contains(wrong, "list") {
							continue // what the items of a list mean is not their type
						}
						hit[wrong] = true
						if err == nil {
							t.Errorf("%s: the schema accepts %q: %s", name, file, reason)
						}
					}
				}
			}
		}
		for _, file := range []string{"nonsense: 1\n", "config: a\n", "- a\n", "just text\n"} {
			if check(schema, document(t, file)) == nil {
				t.Errorf("%s: the schema accepts %q", name, file)
			}
		}
	}
	for _, wrong := range wrongType {
		if !hit[wrong] {
			t.Errorf("no value is refused as %q: is the reason still of these words?", wrong)
		}
	}
}

// binaries returns the settings of both binaries.
func binaries() []*settings.Set {
	relaySet, workerSet := settings.New("relay", "RINGWAY"), settings.New("worker", "RINGWAY")
	r, w := relay.DefaultSettings(), worker.DefaultSettings()
	r.Declare(relaySet)
	w.Declare(workerSet)
	return []*settings.Set{relaySet, workerSet}
}

// A new file has each line behind a #; here all of them are in effect.
func TestTheSchemaAcceptsANewConfigurationFile(t *testing.T) {
	for _, set := range binaries() {
		var file bytes.Buffer
		if err := set.WriteTemplate(&file, settings.Template{All: true}); err != nil {
			t.Fatal(err)
		}
		all := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(file.String(), "$1")
		for _, text := range []string{file.String(), all} {
			if err := check(schemaOf(t, set), document(t, text)); err != nil {
				t.Errorf("%v in:\n%s", err, text)
			}
		}
	}
}

func TestEveryDefaultOfASchemaIsValid(t *testing.T) {
	for _, set := range binaries() {
		defaults := 0
		for name, property := range schemaOf(t, set)["properties"].(map[string]any) {
			value, ok := property.(map[string]any)["default"]
			if !ok {
				continue
			}
			defaults++
			if err := check(property, value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if defaults < 10 {
			t.Errorf("only %d settings have a default", defaults)
		}
	}
}

// refusals are the reasons for which a file is refused because of one setting.
func refusals(set *settings.Set, name, file string) (reasons []string) {
	err := set.Load(settings.Sources{File: "f.yaml", ReadFile: func(string) ([]byte, error) { return []byte(file), nil }})
	var problems settings.Problems
	errors.As(err, &problems)
	for _, p := range problems {
		if p.Setting == name {
			reasons = append(reasons, p.Reason)
		}
	}
	return reasons
}

func schemaOf(t *testing.T, set *settings.Set) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := set.WriteSchema(&b); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(b.Bytes(), &schema); err != nil {
		t.Fatalf("%v in:\n%s", err, b.Bytes())
	}
	return schema
}

// document is a file as JSON has it: YAML 1.2 knows no type for a time.
func document(t *testing.T, file string) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(file), &value); err != nil {
		t.Fatalf("%q: %v", file, err)
	}
	return plain(value)
}

func plain(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.Format(time.RFC3339)
	case int:
		return float64(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}

// check is what JSON Schema defines for the keywords that a schema of settings has.
func check(schema, value any) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no schema of settings", schema)
	}
	for keyword, rule := range s {
		if err := checkKeyword(s, keyword, rule, value); err != nil {
			return err
		}
	}
	return nil
}

func checkKeyword(schema map[string]any, keyword string, rule, value any) error {
	text, isText := value.(string)
	n, isNumber := value.(float64)
	object, _ := value.(map[string]any)
	array, _ := value.([]any)
	broken := false
	switch keyword {
	case "$schema", "title", "description", "default":
	case "type":
		broken = !slices.ContainsFunc(rule.([]any), func(kind any) bool { return isOf(kind.(string), value) })
	case "enum":
		broken = !slices.Contains(rule.([]any), value)
	case "pattern":
		broken = isText && !regexp.MustCompile(rule.(string)).MatchString(text)
	case "minimum":
		broken = isNumber && n < rule.(float64)
	case "maximum":
		broken = isNumber && n > rule.(float64)
	case "exclusiveMinimum":
		broken = isNumber && n <= rule.(float64)
	case "items":
		for _, item := range array {
			if err := check(rule, item); err != nil {
				return err
			}
		}
	case "required":
		broken = object != nil && slices.ContainsFunc(rule.([]any), func(name any) bool { _, there := object[name.(string)]; return !there })
	case "properties":
		for name, one := range rule.(map[string]any) {
			if inner, there := object[name]; there {
				if err := check(one, inner); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	case "additionalProperties":
		known, _ := schema["properties"].(map[string]any)
		for name, inner := range object {
			if _, there := known[name]; there {
				continue
			}
			if rule == false {
				return fmt.Errorf("%s is unknown", name)
			}
			if err := check(rule, inner); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	default:
		return fmt.Errorf("the keyword %s is not known here", keyword)
	}
	if broken {
		return fmt.Errorf("%v breaks %s %v", value, keyword, rule)
	}
	return nil
}

func isOf(kind string, value any) bool {
	switch v := value.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == float64(int64(v))
	case []any:
		return kind == "array"
	default:
		return kind == "object"
	}
}
