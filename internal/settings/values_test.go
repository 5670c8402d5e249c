package settings_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/settings"
)

type small struct {
	Name, Key string
	Tags      []string
	Rules     []string
}

func smallSet(t *testing.T, args ...string) (*small, *settings.Set) {
	t.Helper()
	cfg := &small{Name: "x"}
	set := settings.New("small", "SMALL")
	settings.String(set, &cfg.Name, settings.Spec{Name: "name"})
	settings.String(set, &cfg.Key, settings.Spec{Name: "key", Secret: true})
	settings.Strings(set, &cfg.Tags, settings.Spec{Name: "tag"})
	settings.Section(set, &cfg.Rules, settings.Spec{Name: "rules"})
	flags := pflag.NewFlagSet("small", pflag.ContinueOnError)
	set.BindFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return cfg, set
}

func file(text string) settings.Sources {
	return settings.Sources{File: "small.yaml", ReadFile: func(string) ([]byte, error) { return []byte(text), nil }}
}

func TestADifferenceShowsWhatHasChangedAndNoSecret(t *testing.T) {
	_, set := smallSet(t)
	values := func(text string) []settings.Value {
		t.Helper()
		if err := set.Load(file(text)); err != nil {
			t.Fatal(err)
		}
		return set.Values()
	}
	before := values("name: a\nkey: sesame\nrules: [r]")
	for text, want := range map[string][]settings.Change{
		"name: a\nkey: sesame\nrules: [r]":                 {},
		"rules: [r]\n# moved\nkey: sesame\nname: a":        {},
		"name: b\nkey: sesame\nrules: [r]":                 {{Name: "name", From: "a", To: "b"}},
		"key: sesame\nrules: [r]":                          {{Name: "name", From: "a", To: "x"}},
		"name: a\nkey: open\nrules: [r]":                   {{Name: "key", From: "(redacted)", To: "(redacted)"}},
		"name: a\nrules: [r]":                              {{Name: "key", From: "(redacted)", To: ""}},
		"name: a\nkey: sesame\nrules: [r, s]\ntag: [u, v]": {{Name: "tag", To: "u,v"}, {Name: "rules", From: "- r", To: "- r\n- s"}},
	} {
		if got := settings.Diff(before, values(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	if text := fmt.Sprintf("%+v %v", before, settings.Change{Name: "n", From: "1", To: "2"}); text == "" || text[len(text)-len(`n: "1" is now "2"`):] != `n: "1" is now "2"` {
		t.Error(text)
	}
}

func TestALookupAsksOneSettingAlsoIfOthersAreInvalid(t *testing.T) {
	broken := file("name: from file\nnmae: y\ntag: {}\n")
	for _, c := range []struct {
		args    []string
		environ string
		want    string
	}{
		{nil, "", "from file"},
		{nil, "SMALL_NAME=from environment", "from environment"},
		{[]string{"--name=from flag"}, "SMALL_NAME=from environment", "from flag"},
	} {
		cfg, set := smallSet(t, c.args...)
		from := broken
		from.Environ = []string{c.environ}
		if err := set.Load(from); err == nil {
			t.Fatal("the file is not broken")
		}
		if got, ok := set.Lookup("name", from); !ok || got != c.want || cfg.Name != "x" {
			t.Errorf("%v %q: %q, %v", c.args, c.environ, got, ok)
		}
	}
	_, set := smallSet(t, "--config=nowhere.yaml")
	if got, ok := set.Lookup("name", settings.Sources{}); !ok || got != "x" { // the file is not there: the default
		t.Errorf("%q, %v", got, ok)
	}
	for _, name := range []string{"nothing", "rules"} {
		if got, ok := set.Lookup(name, settings.Sources{}); ok {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheNearestNameIsSuggested(t *testing.T) {
	for typed, want := range map[string]string{"wathc": "watch", "out-put": "output", "zzz": "", "": ""} {
		if got := settings.Nearest(typed, []string{"watch", "output"}); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
