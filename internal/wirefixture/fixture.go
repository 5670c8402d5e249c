package wirefixture

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Variable names the environment variable with the release whose missing fixtures Check writes.
const Variable = "WIRE_FIXTURES"

// Format is one variant of the bytes that members or operators exchange.
type Format struct {
	// Name is the name of the files.
	Name string
	// Encode returns the bytes that this build writes for the value of the fixture. Nil: no
	// release writes the bytes any more.
	Encode func() ([]byte, error)
	// Random is true if the bytes contain random numbers, so that only Decode is compared.
	Random bool
	// Decode returns what this build reads, in a form that encoding/json writes.
	Decode func(raw []byte) (any, error)
	// Later are additions of a later release, by description, which Decode must skip.
	Later map[string]func(raw []byte) []byte
	// Refused are changes of a later release, by description, for which Decode must return an
	// error.
	Refused map[string]func(raw []byte) []byte
}

// Check tests every format against the fixtures in testdata/wire of the package under test.
func Check(t *testing.T, formats ...Format) {
	t.Helper()
	check(t, set{dir: filepath.Join("testdata", "wire"), write: os.Getenv(Variable)}, formats)
}

// failer is the part of *testing.T that Check uses to fail.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// set is the fixtures of one package.
type set struct {
	dir   string
	write string // the release whose missing files are written; empty: none
}

func check(t failer, s set, formats []Format) {
	t.Helper()
	if s.write != "" {
		if err := s.add(formats); err != nil {
			t.Errorf("%v", err)
		}
	}
	releases, err := s.releases()
	if err != nil || len(releases) == 0 {
		t.Errorf("no fixtures in %s (%v): write them with `make wire-fixtures RELEASE=0.1.0`", s.dir, err)
		return
	}
	tested := map[string]bool{} // whether a later release has the fixture
	for _, release := range slices.Backward(releases) {
		fixtures, err := s.read(release)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, f := range formats {
			if stored, has := fixtures[f.Name]; has {
				f.compare(t, fixture{release + " " + f.Name, stored, !tested[f.Name]})
				tested[f.Name] = true
				delete(fixtures, f.Name)
			}
		}
		for name := range fixtures { // a renamed format would leave its promise untested
			t.Errorf("%s of %s: no test reads it: keep the format in the test", name, s.path(release))
		}
	}
	for _, f := range formats {
		if !tested[f.Name] {
			t.Errorf("%s: no release has a fixture: write that of the next one with `make wire-fixtures RELEASE=` and its version", f.Name)
		}
	}
}

// stored is a fixture in its file.
type stored struct {
	// Hex are the bytes, in lines that a review can show.
	Hex   []string        `json:"hex"`
	Value json.RawMessage `json:"value"`
}

func (s stored) bytes() ([]byte, error) { return hex.DecodeString(strings.Join(s.Hex, "")) }

// fixture is the bytes of one release and their value.
type fixture struct {
	name string
	stored
	newest bool // no later release has the format
}

func (f Format) compare(t failer, x fixture) {
	t.Helper()
	bytesOf, err := x.bytes()
	if err != nil {
		t.Errorf("%s: %v", x.name, err)
		return
	}
	reads := func(what string, raw []byte) {
		value, err := f.Decode(raw)
		if err != nil {
			t.Errorf("%s%s is not read any more: %v", x.name, what, err)
		} else if err := covers(x.Value, value); err != nil {
			t.Errorf("%s%s is read as another value: %v", x.name, what, err)
		}
	}
	reads("", bytes.Clone(bytesOf))
	for what, change := range f.Later {
		reads(" with "+what, change(bytes.Clone(bytesOf)))
	}
	for what, change := range f.Refused {
		if value, err := f.Decode(change(bytes.Clone(bytesOf))); err == nil {
			t.Errorf("%s with %s is accepted: %+v", x.name, what, value)
		}
	}
	if f.Encode == nil || !x.newest {
		return
	}
	raw, err := f.Encode()
	switch {
	case err != nil:
		t.Errorf("%s: %v", x.name, err)
	case f.Random:
		reads(", as this build writes it,", raw)
	case !bytes.Equal(raw, bytesOf):
		t.Errorf("%s: this build writes\n%s\nand not\n%s\nIf the older releases read that, add it with `make wire-fixtures RELEASE=` and the next version", x.name, strings.Join(lines(raw), "\n"), strings.Join(x.Hex, "\n"))
	}
}

func (s set) path(release string) string { return filepath.Join(s.dir, release+".json") }

// releases returns the releases with fixtures, oldest first.
func (s set) releases() (names []string, err error) {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".json")
		if _, err := version(name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		left, _ := version(a)
		right, _ := version(b)
		return slices.Compare(left[:], right[:])
	})
	return names, err
}

// version reads a version such as 0.1.0.
func version(name string) (v [3]int, err error) {
	parts := strings.Split(name, ".")
	for i := range v {
		if len(parts) != len(v) {
			break
		}
		if v[i], err = strconv.Atoi(parts[i]); err != nil || strconv.Itoa(v[i]) != parts[i] {
			parts = nil
		}
	}
	if len(parts) != len(v) {
		return v, fmt.Errorf("%q is no release: want three numbers such as 0.2.0", name)
	}
	return v, nil
}

func (s set) read(release string) (fixtures map[string]stored, err error) {
	text, err := os.ReadFile(s.path(release))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &fixtures); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(release), err)
	}
	return fixtures, nil
}

// add writes the fixtures of a release that its file does not have yet.
func (s set) add(formats []Format) error {
	if _, err := version(s.write); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	fixtures, err := s.read(s.write)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if fixtures == nil {
		fixtures = map[string]stored{}
	}
	var problems []error
	for _, f := range formats {
		old, exists := fixtures[f.Name]
		if f.Encode == nil || exists && f.Random {
			continue
		}
		raw, err := f.Encode()
		if err == nil && exists && !slices.Equal(old.Hex, lines(raw)) {
			err = fmt.Errorf("release %s writes other bytes, which are not replaced: give the change the next version, or remove the fixture if %s is not released", s.write, s.write)
		}
		if err == nil && !exists {
			var value any
			if value, err = f.Decode(bytes.Clone(raw)); err == nil {
				old.Hex = lines(raw)
				old.Value, err = json.Marshal(value)
				fixtures[f.Name] = old
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", f.Name, err))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	text, err := json.MarshalIndent(fixtures, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.path(s.write), append(text, '\n'), 0o600)
}

// lines returns bytes as hex, in lines that a review can show.
func lines(raw []byte) (out []string) {
	const perLine = 40
	for line := range slices.Chunk(raw, perLine) {
		out = append(out, hex.EncodeToString(line))
	}
	return out
}

// covers returns an error unless the value has everything that the JSON want has, and only
// zero values beyond.
func covers(want []byte, value any) error {
	got, err := json.Marshal(value)
	if err != nil {
		return err
	}
	wanted, err := parse(want)
	if err != nil {
		return err
	}
	read, err := parse(got)
	if err != nil {
		return err
	}
	return differ("value", wanted, read)
}

// parse keeps numbers as text: 64 bits do not fit into a float.
func parse(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return value, d.Decode(&value)
}

func differ(at string, want, got any) error {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			break
		}
		for name, one := range want {
			other, known := fields[name]
			if !known && !zero(one) {
				return fmt.Errorf("%s.%s is missing, want %v", at, name, one)
			}
			if err := differ(at+"."+name, one, other); known && err != nil {
				return err
			}
		}
		for name, one := range fields {
			if _, known := want[name]; !known && !zero(one) {
				return fmt.Errorf("%s.%s is %v, and the release has no such field", at, name, one)
			}
		}
		return nil
	case []any:
		elements, ok := got.([]any)
		if !ok || len(elements) != len(want) {
			break
		}
		for i := range want {
			if err := differ(fmt.Sprintf("%s[%d]", at, i), want[i], elements[i]); err != nil {
				return err
			}
		}
		return nil
	default:
		if want == got {
			return nil
		}
	}
	return fmt.Errorf("%s is %v, want %v", at, got, want)
}

// zero reports whether a value is that of an absent field.
func zero(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		n, err := v.Float64()
		return err == nil && n == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, one := range v {
			if !zero(one) {
				return false
			}
		}
	}
	return true
}
