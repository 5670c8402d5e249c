package strategy

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEveryDefaultIsThatOfTheContract(t *testing.T) {
	for name, want := range map[string]Spec{
		P2C: {Name: P2C}, Stable: {Name: Stable, Bound: 1.25}, StableSHA256: {Name: StableSHA256}, Random: {Name: Random},
		Closest:  {Name: Closest, Expiry: 5 * time.Minute, Timeout: 2 * time.Second},
		Farthest: {Name: Farthest, Expiry: 5 * time.Minute, Timeout: 2 * time.Second},
		Slots:    {Name: Slots, VirtualNodes: 8, Samples: 2, MaxScan: 16, SlotJitter: 4, Fresh: 10 * time.Second},
	} {
		got, err := Parse(name)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", name, got, err, want)
		}
		if got.String() != name {
			t.Errorf("the default of %s reads %q", name, got.String())
		}
	}
	if got, err := Parse(""); err != nil || got.Name != P2C || Names()[0] != P2C {
		t.Errorf(`"" is %+v, %v; want the default, p2c`, got, err)
	}
}

func TestParametersAreRead(t *testing.T) {
	for text, want := range map[string]Spec{
		"slots;vnodes=16;samples=3;maxscan=7;jitter=0;fresh=1m30s": {Name: Slots, VirtualNodes: 16, Samples: 3, MaxScan: 7, Fresh: 90 * time.Second},
		"stable;bound=0":                                         {Name: Stable},
		" stable ; bound = 2.5":                                  {Name: Stable, Bound: 2.5},
		" slots ; samples = 1 ":                                  {Name: Slots, VirtualNodes: 8, Samples: 1, MaxScan: 16, SlotJitter: 4, Fresh: 10 * time.Second},
		"closest;timeout=100ms;preferred=w2,w1":                  {Name: Closest, Preferred: []string{"w2", "w1"}, Expiry: 5 * time.Minute, Timeout: 100 * time.Millisecond},
		"farthest;expiry=1s;preferred=":                          {Name: Farthest, Expiry: time.Second, Timeout: 2 * time.Second},
		"manual;preferred=1, 2,":                                 {Name: Manual, Preferred: []string{"1", "2"}},
		"ordered;preferred=,1,,2":                                {Name: Ordered, Preferred: []string{"1", "2"}},
		"manual;preferred=  w1.eu-west_1  ,\tbackup (old), a=b ": {Name: Manual, Preferred: []string{"w1.eu-west_1", "backup (old)", "a=b"}},
	} {
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestAllMistakesAreReportedInOneErrorInAStableOrder(t *testing.T) {
	oneOf := "(must be one of: p2c, stable, stable-sha256, manual, ordered, random, closest, farthest, slots)"
	for text, want := range map[string][]string{
		"nearest":                   {`selection: invalid strategy: "nearest" ` + oneOf},
		"Stable":                    {`selection: invalid strategy: "Stable" ` + oneOf},
		"nearest;vnodes=x;colour=1": {`selection: invalid strategy: "nearest" ` + oneOf},
		"slots;colour=1;":           {`strategy slots takes no parameter "colour" (must be one of: vnodes, samples, maxscan, jitter, fresh)`, `takes no parameter ""`},
		"manual":                    {"strategy manual requires at least one node in preferred"},
		"ordered;preferred= , ":     {"strategy ordered requires at least one node in preferred"},
		"manual;preferred=a,b,a":    {`preferred of strategy manual names "a" twice`},
		"stable;preferred=a":        {`strategy stable takes no parameter "preferred" (must be one of: bound)`},
		"stable-sha256;bound=2":     {`strategy stable-sha256 takes no parameter "bound" (it takes none)`},
		"stable;bound=tight":        {`parameter bound of strategy stable: "tight" is not a number, such as 1.25`},
		"stable;bound=1":            {"parameter bound of strategy stable must be 0 (off), or above 1 and at most 100, not 1"},
		"stable;bound=-1.25":        {"or above 1 and at most 100, not -1.25"},
		"stable;bound=100.5":        {"or above 1 and at most 100, not 100.5"},
		"stable;bound=NaN":          {"or above 1 and at most 100, not NaN"},
		"stable;bound=Inf":          {"or above 1 and at most 100, not +Inf"},
		"random;jitter=1;fresh=1s":  {`strategy random takes no parameter "jitter"`, `strategy random takes no parameter "fresh"`},
		"closest;vnodes=1":          {`strategy closest takes no parameter "vnodes" (must be one of: preferred, expiry, timeout)`},
		"closest;timeout=-1s;expiry=0": {
			"parameter expiry of strategy closest must be at least 1s, not 0s", "parameter timeout of strategy closest must be greater than 0, not -1s"},
		"farthest;expiry=1ns": {"parameter expiry of strategy farthest must be at least 1s, not 1ns"},
		"slots;vnodes=0;samples=0;maxscan=0;jitter=-1;fresh=0s": {
			"vnodes of strategy slots must be in 1..64, not 0", "samples of strategy slots must be in 1..8, not 0",
			"maxscan of strategy slots must be in 1..256, not 0", "jitter of strategy slots must be in 0..64, not -1", "fresh of strategy slots must be greater than 0"},
		"slots;jitter=65;maxscan=257;samples=9;vnodes=65": {"1..64, not 65", "1..8, not 9", "1..256, not 257", "0..64, not 65"},
		"slots;vnodes=many;fresh=10;samples=1;samples=2":  {`parameter vnodes of strategy slots: "many" is not a whole number`, `fresh of strategy slots: "10" is not a duration`, "samples of strategy slots is given twice"},
	} {
		for range 5 {
			_, err := Parse(text)
			if err == nil {
				t.Fatalf("%q was accepted", text)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(want) {
				t.Fatalf("%q: %d problems, want %d:\n%v", text, len(lines), len(want), err)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, "selection: ") || !strings.Contains(line, want[i]) {
					t.Errorf("%q: problem %d is %q, want %q", text, i, line, want[i])
				}
			}
		}
	}
}

func TestASpecBuiltInCodeIsCheckedLikeOneThatIsRead(t *testing.T) {
	for want, spec := range map[string]Spec{
		"requires at least one node":          {Name: Ordered},
		"must be greater than 0":              {Name: Closest, Expiry: minExpiry},
		"must be in 1..64":                    {Name: Slots, Samples: 1, MaxScan: 1, Fresh: 1},
		`takes no parameter "preferred"`:      {Name: Random, Preferred: []string{"a"}},
		`takes no parameter "expiry"`:         {Name: Stable, Expiry: 1},
		"must be one of":                      {},
		`"a;b" is not a valid node name`:      {Name: Manual, Preferred: []string{"a;b"}},
		`"" is not a valid node name`:         {Name: Manual, Preferred: []string{""}},
		"p2c is not a strategy of this packa": {Name: P2C},
	} {
		if s, err := New(Config{Spec: spec}); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", spec, err, want)
		}
	}
	if err := (Spec{Name: Manual}).Validate(); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("manual without nodes: %v", err)
	}
}

func TestTheCallersListIsNotTheStrategys(t *testing.T) {
	preferred := []string{"b", "a"}
	s, err := New(Config{Spec: Spec{Name: Ordered, Preferred: preferred}})
	if err != nil {
		t.Fatal(err)
	}
	preferred[0] = "a"
	update(t, s, endpoints("a", "b"))
	if got := pick(t, s, Request{}); got != "b" {
		t.Errorf("picked %q", got)
	}
}

// valid draws a spec that Validate accepts.
func valid(t *rapid.T) Spec {
	s := Default(rapid.SampledFrom(names).Draw(t, "name"))
	for _, p := range parameters {
		if !p.takenBy(s.Name) {
			continue
		}
		switch p := p.(type) {
		case number:
			*p.field(&s) = rapid.IntRange(p.low, p.high).Draw(t, p.name)
		case factor:
			if *p.field(&s) = 0; rapid.Bool().Draw(t, "on") {
				*p.field(&s) = rapid.Float64Range(1.001, p.high).Draw(t, p.name)
			}
		case period:
			*p.field(&s) = time.Duration(rapid.Int64Range(max(1, int64(p.low)), 1e15).Draw(t, p.name))
		case preferred:
			s.Preferred = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9._=-]{1,5}`), 1, 4, rapid.ID[string]).Draw(t, "preferred")
		}
	}
	return s
}

func TestStringIsWhatParseReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := valid(t)
		got, err := Parse(spec.String())
		if err != nil || !reflect.DeepEqual(got, spec) {
			t.Fatalf("%q is read as %+v, %v; want %+v", spec.String(), got, err, spec)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "p2c", "slots;vnodes=16;samples=3", "manual;preferred=a, b,,", "closest;expiry=1m;timeout=1s", "x;;=;a=b=c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Parse(text)
		if err != nil {
			if !reflect.DeepEqual(spec, Spec{}) || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%q: %+v with the error %q", text, spec, err)
			}
			return
		}
		again, err := Parse(spec.String())
		if err != nil || !reflect.DeepEqual(again, spec) {
			t.Fatalf("%q is %+v; its text %q is %+v, %v", text, spec, spec.String(), again, err)
		}
	})
}

func TestEveryStrategyButTheDefaultCanBeMade(t *testing.T) {
	for _, name := range Names() {
		spec := Default(name)
		if slices.Contains([]string{Manual, Ordered}, name) {
			spec.Preferred = []string{"a"}
		}
		s, err := New(Config{Spec: spec})
		if (err == nil) != (name != P2C) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		wantError(t, s, Request{}, ErrNoEndpoints)
		if got := s.spec; !reflect.DeepEqual(got, spec) {
			t.Errorf("made from %+v, says %+v", spec, got)
		}
	}
}
