package strategy

import (
	"maps"
	"testing"
)

func TestEveryParameterIsListedWithItsValue(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"p2c":                           nil,
		"stable":                        {"bound": "1.25"},
		"stable;bound=0":                {"bound": "0"},
		"stable-sha256":                 nil,
		"manual;preferred=w2,w1":        {"preferred": "w2,w1"},
		"closest;expiry=1m":             {"preferred": "", "expiry": "1m0s", "timeout": "2s"},
		"slots;vnodes=16;jitter=0":      {"vnodes": "16", "samples": "2", "maxscan": "16", "jitter": "0", "fresh": "10s"},
		"ordered;preferred=a":           {"preferred": "a"},
		"farthest;timeout=1s;expiry=2s": {"preferred": "", "expiry": "2s", "timeout": "1s"},
	} {
		spec, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.Parameters(); !maps.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
