package settings

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Spec describes one setting. Every setting needs Name, Usage and Group, the other fields
// are optional.
type Spec struct {
	// Name is the flag name in kebab-case, for example "gossip-addr". The file key
	// is the same; the environment variable follows from it.
	Name string
	// Group is the heading under which help and reference list the setting;
	// "General" when empty. Groups appear in the order of their first setting.
	Group string
	// Letter is an optional one-letter flag.
	Letter string
	// Short describes a setting of a first fleet in a few words. Only settings with a Short are
	// in the short help and in a new configuration file.
	Short string
	// Usage is the whole description: one sentence without a full stop.
	Usage string
	// Placeholder names the value in help, for example "HOST:PORT"; the type when empty.
	Placeholder string
	// DefaultText replaces the default in help and reference if the real one depends on the
	// machine, for example "host name".
	DefaultText string
	// Required refuses a setting that no source gives, or that is empty.
	Required bool
	// Fallback returns the value, as written in a flag, of a setting that no source gives, when
	// the default depends on another setting, FallbackFrom; "" for none. Load calls it when
	// that is filled, unless that is invalid. DefaultText describes it.
	Fallback     func() string
	FallbackFrom string
	// Initial is the value, as YAML, in a new configuration file. Empty: the file shows the
	// default in a comment.
	Initial string
	// Instead is another setting: given as a flag for a new file, it leaves Initial a comment.
	Instead string
	// Secret hides the value in all output and refuses it as a flag, because every user of the
	// machine can read the command lines of processes.
	Secret bool
	// Redact replaces what is secret in a value, of a list in each item, for all output. Default: nothing is.
	Redact func(value string) string
	// Reloadable means that a reload applies a new value while the program runs.
	Reloadable bool
}

// setting is one declared setting: its description, and the variable it fills.
type setting struct {
	Spec
	kind    string // "string", "int", …; the type column of the reference
	want    string // the values that the kind accepts, in words
	allowed string // the values that the rules allow, in words; may be empty
	list    bool
	pattern string       // see Kind
	values  []string     // see Kind
	bounds  bound        // of a number
	shape   reflect.Type // of a section
	section bool         // only a key of the file
	noFile  bool         // no key of the file
	origin  Origin
	flag    *flagValue
	variable
}

// variable is the part of a setting that depends on its type.
type variable interface {
	parse(raw []string) error // parses and assigns, without checking rules
	verify() error            // checks the present value against the rules
	text() string             // the present value as written in a configuration
	mark() string             // what makes it differ from another value
	reset()                   // assigns the default
	save()                    // remembers the present value
	restore()                 // assigns the remembered value
	// decode fills a section from a parsed file.
	decode(f *file, spec Spec) Problems
}

// Set is the settings of one program. The zero value is not usable; see [New].
// A Set is for one goroutine.
type Set struct {
	name     string
	prefix   string
	settings []*setting
	byName   map[string]*setting
	checks   []func() []Problem
	doubts   []func() []string // see Warn
	mistakes []string          // programming mistakes in declarations, reported by Load
	path     string            // the value of --config
	warnings []string
}

// New returns a set with one setting, "config": the path of the YAML file. Name is the
// heading of the generated reference; prefix starts the name of every environment variable,
// without the underscore.
func New(name, prefix string) *Set {
	s := &Set{
		name:   name,
		prefix: prefix + "_",
		byName: map[string]*setting{},
	}
	String(s, &s.path, Spec{
		Name:        "config",
		Group:       "Configuration",
		Short:       "YAML file with settings; the command config init writes one",
		Usage:       "YAML file with settings; its keys are the flag names",
		Placeholder: "FILE",
	})
	s.byName["config"].noFile = true
	return s
}

// declare adds a setting. Mistakes in declarations are kept for Load, so that a binary with
// a mistake reports the mistake instead of panicking.
func (s *Set) declare(st *setting) {
	if st.Group == "" {
		st.Group = "General"
	}
	if !validName(st.Name) {
		s.mistakes = append(s.mistakes, fmt.Sprintf("setting %q: the name must be kebab-case (a-z, 0-9, single dashes)", st.Name))
		return
	}
	if s.byName[st.Name] != nil {
		s.mistakes = append(s.mistakes, fmt.Sprintf("setting %q is declared twice", st.Name))
		return
	}
	s.settings = append(s.settings, st)
	s.byName[st.Name] = st
}

func validName(name string) bool {
	if name == "" || name[0] < 'a' || name[0] > 'z' || strings.HasSuffix(name, "-") || strings.Contains(name, "--") {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Variable returns the environment variable of the named setting.
func (s *Set) Variable(name string) string {
	return s.prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Names returns the names of all settings, sorted.
func (s *Set) Names() []string {
	names := make([]string, len(s.settings))
	for i, st := range s.settings {
		names[i] = st.Name
	}
	slices.Sort(names)
	return names
}

// Reloadable returns the names of the settings that a reload applies, in the order of their
// declaration.
func (s *Set) Reloadable() (names []string) {
	for _, st := range s.settings {
		if st.Reloadable {
			names = append(names, st.Name)
		}
	}
	return names
}

// Check registers a condition across settings. Load calls it after all variables are
// filled; a setting that is invalid by itself then has its default. The check must not
// change anything.
func (s *Set) Check(check func() []Problem) { s.checks = append(s.checks, check) }

// Warn registers a function that returns what is valid and yet probably a mistake, for
// Warnings. Load calls it when all settings are valid.
func (s *Set) Warn(doubts func() []string) { s.doubts = append(s.doubts, doubts) }

// BindFlags adds a flag for every setting declared so far. Parsing fs only records the
// values; Load checks them, so that all problems are reported together. Call it once,
// before fs is parsed.
func (s *Set) BindFlags(fs *pflag.FlagSet) {
	for _, st := range s.settings {
		if st.section {
			continue
		}
		st.flag = &flagValue{setting: st}
		st.pflag(fs, st.flag)
	}
}

// WriteShortHelp writes the flags of a first fleet in the order of declaration, each with its
// Short, wrapped at width columns (0: not wrapped).
func (s *Set) WriteShortHelp(w io.Writer, width int) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	for _, st := range s.settings {
		if st.Short == "" || st.section {
			continue
		}
		flag := st.pflag(fs, &flagValue{setting: st})
		flag.Usage = st.Short
		if st.DefaultText != "" { // it may be long: the whole help has it
			flag.DefValue = ""
		}
	}
	if _, err := io.WriteString(w, fs.FlagUsagesWrapped(width)); err != nil {
		return fmt.Errorf("write help: %w", err)
	}
	return nil
}

// WriteHelp writes all flags under the headings of their groups, wrapped at width columns
// (0: not wrapped).
func (s *Set) WriteHelp(w io.Writer, width int) error {
	for i, group := range s.groups() {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.SortFlags = false
		for _, st := range s.settings {
			if st.Group == group && !st.section {
				st.pflag(fs, &flagValue{setting: st})
			}
		}
		if !fs.HasFlags() {
			continue
		}
		gap := "\n"
		if i == 0 {
			gap = ""
		}
		if _, err := fmt.Fprintf(w, "%s%s:\n%s", gap, group, fs.FlagUsagesWrapped(width)); err != nil {
			return fmt.Errorf("write help: %w", err)
		}
	}
	return nil
}

// groups returns the groups in the order of their first setting, with the group of the
// configuration file last, because it is the least interesting.
func (s *Set) groups() []string {
	var groups []string
	for _, st := range slices.Concat(s.settings[1:], s.settings[:1]) {
		if !slices.Contains(groups, st.Group) {
			groups = append(groups, st.Group)
		}
	}
	return groups
}
