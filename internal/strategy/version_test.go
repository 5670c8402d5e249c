package strategy

import (
	"testing"

	"pgregory.net/rapid"
)

func TestVersionsAreOrderedByTheirNumbers(t *testing.T) {
	rising := [][]string{
		{"", "0.9", "1.0-alpha", "1.0-rc2", "1.0-rc10", "1.0", "1.0.1", "1.2", "1.9", "1.10", "2"},
		{"v1.9.9", "1.10.0", "v1.10.1"},
		{"2024-05-09", "2024-05-10", "2024-11-01"},
		{"1.0-rc1", "1.0", "1.0a"},
		{"build7", "build12"},
		{"99999999999999999999", "100000000000000000000"},
	}
	for _, versions := range rising {
		for i, a := range versions {
			for j, b := range versions {
				if got := CompareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
					t.Errorf("compare %q with %q: %d", a, b, got)
				}
			}
		}
	}
	for a, b := range map[string]string{"1.2": "v1.2+abc", "01": "1", "1.0+a": "1.0+b"} {
		if CompareVersions(a, b) != 0 || CompareVersions(b, a) != 0 {
			t.Errorf("%q and %q are one version", a, b)
		}
	}
}

func TestVersionsHaveOneOrder(t *testing.T) {
	version := rapid.StringMatching(`v?[0-9a.+-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		if CompareVersions(a, b) != -CompareVersions(b, a) {
			t.Fatalf("%q and %q: %d and %d", a, b, CompareVersions(a, b), CompareVersions(b, a))
		}
		if CompareVersions(a, b) <= 0 && CompareVersions(b, c) <= 0 && CompareVersions(a, c) > 0 {
			t.Fatalf("%q <= %q <= %q, but not %q <= %q", a, b, c, a, c)
		}
	})
}
