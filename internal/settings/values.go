package settings

import (
	"fmt"
	"hash/maphash"
	"os"
	"strings"
)

// Value is one setting in effect, as `config show` prints it.
type Value struct {
	Name   string `json:"name" yaml:"name"`
	Group  string `json:"group" yaml:"group"`
	Type   string `json:"type" yaml:"type"`
	Value  string `json:"value" yaml:"value"` // as written in a configuration; redacted for secrets
	Origin Origin `json:"origin" yaml:"origin"`
	Secret bool   `json:"secret,omitempty" yaml:"secret,omitempty"`

	mark uint64 // tells values apart that may not be shown
}

// marks is of this process alone, so that a mark says nothing about a secret.
var marks = maphash.MakeSeed()

// Values returns every setting in the order of declaration, with the value in
// effect and where it came from. Secrets that are set read "(redacted)".
func (s *Set) Values() []Value {
	values := make([]Value, len(s.settings))
	for i, st := range s.settings {
		values[i] = Value{
			Name: st.Name, Group: st.Group, Type: st.kind,
			Value: st.shown(), Origin: st.origin, Secret: st.Secret, mark: maphash.String(marks, st.text()),
		}
	}
	return values
}

// Origin returns where the value of the named setting came from, and whether
// there is such a setting.
func (s *Set) Origin(name string) (Origin, bool) {
	st := s.byName[name]
	if st == nil {
		return Origin{}, false
	}
	return st.origin, true
}

// shown is the value as it may be shown to anybody.
func (st *setting) shown() string {
	text := st.text()
	if st.Secret && text != "" {
		return redacted
	}
	return text
}

// Change is a setting that has another value than before.
type Change struct {
	Name string `json:"name"`
	From string `json:"from"` // redacted for secrets
	To   string `json:"to"`
}

// String says for example `request-timeout: "30s" is now "10s"`.
func (c Change) String() string { return fmt.Sprintf("%s: %q is now %q", c.Name, c.From, c.To) }

// Diff lists the settings whose values differ, in the order of after. Both are from
// Values of one Set. Secrets are compared without being shown.
func Diff(before, after []Value) []Change {
	old := make(map[string]Value, len(before))
	for _, v := range before {
		old[v.Name] = v
	}
	changes := []Change{}
	for _, v := range after {
		if was := old[v.Name]; was.mark != v.mark {
			changes = append(changes, Change{Name: v.Name, From: was.Value, To: v.Value})
		}
	}
	return changes
}

// Lookup returns the text of one setting, from the source of highest precedence,
// whatever is wrong with the others. Nothing is filled or judged.
func (s *Set) Lookup(name string, from Sources) (string, bool) {
	st := s.byName[name]
	if st == nil || st.section {
		return "", false
	}
	environ := environment(from.Environ)
	path := from.File
	if path == "" {
		if raw, _, err := s.find(s.byName["config"], environ, nil); err == nil && len(raw) == 1 {
			path = raw[0]
		}
	}
	var parsed *file
	if path != "" {
		read := from.ReadFile
		if read == nil {
			read = os.ReadFile
		}
		if body, err := read(path); err == nil {
			parsed, _ = parseFile(path, body)
		}
	}
	raw, _, err := s.find(st, environ, parsed)
	return strings.Join(raw, ","), err == nil
}
