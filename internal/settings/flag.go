package settings

import (
	"fmt"
	"hash/maphash"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// flagValue records the values from the command line without checking them.
type flagValue struct {
	setting *setting
	given   bool
	raw     []string
}

// Set records one occurrence. It never fails: Load checks all values together.
func (v *flagValue) Set(text string) error {
	v.given = true
	if v.setting.list {
		v.raw = append(v.raw, splitList(text)...)
	} else {
		v.raw = []string{text}
	}
	return nil
}

// String returns the default, which pflag shows in the help.
func (v *flagValue) String() string {
	if v.setting == nil || v.setting.Secret {
		return ""
	}
	if v.setting.DefaultText != "" {
		return v.setting.DefaultText
	}
	v.setting.save()
	defer v.setting.restore()
	v.setting.reset()
	return v.setting.text()
}

// Type returns the placeholder for the value in the help.
func (v *flagValue) Type() string {
	if v.setting.Placeholder != "" && v.setting.kind != "bool" {
		return v.setting.Placeholder
	}
	return v.setting.kind
}

// pflag adds the setting to fs.
func (st *setting) pflag(fs *pflag.FlagSet, value *flagValue) *pflag.Flag {
	usage, required := st.Usage, st.Required && st.Fallback == nil
	switch {
	case required && st.allowed != "":
		usage += " (required; " + st.allowed + ")"
	case required:
		usage += " (required)"
	case st.allowed != "":
		usage += " (" + st.allowed + ")"
	case st.Secret:
		usage += " (a secret: refused as a flag)"
	}
	flag := fs.VarPF(value, st.Name, st.Letter, usage)
	if st.kind == "bool" {
		flag.NoOptDefVal = "true"
	}
	return flag
}

// Value is one setting in effect, as `config show` prints it.
type Value struct {
	Name   string `json:"name" yaml:"name"`
	Group  string `json:"group" yaml:"group"`
	Type   string `json:"type" yaml:"type"`
	Value  string `json:"value" yaml:"value"` // as written in a configuration; redacted for secrets
	Origin Origin `json:"origin" yaml:"origin"`
	Secret bool   `json:"secret,omitempty" yaml:"secret,omitempty"`

	mark uint64 // a hash, to compare values that are not shown, or not whole
}

// marks is a random seed of this process, so that a mark reveals nothing about a secret.
var marks = maphash.MakeSeed()

// Values returns all settings in the order of declaration, with the value in effect and its
// origin. The value of a secret that is set is "(redacted)".
func (s *Set) Values() []Value {
	values := make([]Value, len(s.settings))
	for i, st := range s.settings {
		values[i] = Value{
			Name: st.Name, Group: st.Group, Type: st.kind,
			Value: st.shown(), Origin: st.origin, Secret: st.Secret, mark: maphash.String(marks, st.mark()),
		}
	}
	return values
}

// Origin returns the origin of the value of the named setting, false if there is no such
// setting.
func (s *Set) Origin(name string) (Origin, bool) {
	st := s.byName[name]
	if st == nil {
		return Origin{}, false
	}
	return st.origin, true
}

// shown returns the value with a secret redacted.
func (st *setting) shown() string {
	if list, is := st.variable.(*typed[[]string]); is && st.Redact != nil {
		return st.publicItems(*list.target)
	}
	return st.public(st.text())
}

// publicItems returns items of a list with what is secret in each redacted.
func (st *setting) publicItems(items []string) string {
	shown := make([]string, len(items))
	for i, item := range items {
		shown[i] = st.public(item)
	}
	return strings.Join(shown, ",")
}

// public returns a text of the setting, or an item of it, with a secret redacted.
func (st *setting) public(text string) string {
	switch {
	case st.Secret && text != "":
		return redacted
	case st.Redact != nil:
		return st.Redact(text)
	}
	return text
}

// Change is a setting whose value has changed.
type Change struct {
	Name string `json:"name"`
	From string `json:"from"` // redacted for secrets
	To   string `json:"to"`
}

// String returns for example `request-timeout: "30s" is now "10s"`.
func (c Change) String() string {
	if c.From == c.To {
		return fmt.Sprintf("%s: the content of %q has changed", c.Name, c.To)
	}
	return fmt.Sprintf("%s: %q is now %q", c.Name, c.From, c.To)
}

// Diff lists the settings whose values differ, in the order of after. Both lists must be
// from Values of the same Set. Secrets are compared by their marks.
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

// Lookup returns the text of one setting from the source of highest precedence, whether or
// not other settings are valid. It fills and checks nothing.
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
