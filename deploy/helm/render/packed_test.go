package render

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

func TestHelmLintFindsNothing(t *testing.T) {
	for _, values := range []map[string]any{nil, at("example.enabled", false), at("networkPolicy.enabled", false)} {
		for _, m := range lint.RunAll(chartDir, values, "ringway").Messages {
			// An icon is a picture on the page of a registry.
			if m.Severity != support.InfoSev || !strings.Contains(m.Err.Error(), "icon") {
				t.Errorf("%v: %v", values, m)
			}
		}
	}
	for _, m := range lint.RunAll(libraryDir, nil, "ringway").Messages {
		if m.Severity != support.InfoSev || !strings.Contains(m.Err.Error(), "icon") {
			t.Errorf("the library: %v", m)
		}
	}
}

// pack makes the charts of a release of the version, and returns that of the relays.
func pack(t *testing.T, version string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./deploy/release", "--version", version, "--platforms", "", dir)
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1790000000", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%q, %v: want two charts", files, err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	for _, file := range files {
		if err != nil || !strings.Contains(string(sums), "  "+filepath.Base(file)+"\n") {
			t.Errorf("checksums.txt: %q, %v", sums, err)
		}
	}
	// The library is in the same version.
	library := load(t, files[1])
	if err := library.Validate(); err != nil || library.Name() != "ringway-worker" || library.Metadata.AppVersion != version || len(library.Templates) != 2 || len(library.Schema) == 0 {
		t.Errorf("the library: %+v, %v", library.Metadata, err)
	}
	return files[0]
}

func TestAReleasedChartHasItsVersionAndTheImagesOfIt(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":            "1.2.3",
		"v1.3.0-rc.1":       "1.3.0-rc.1",
		"v1.2.3-4-g0123abc": "1.2.3+4.g0123abc",
		"0123456-dirty":     "0.0.0-20260921t141320-0123456-dirty",
	} {
		file := pack(t, version)
		if name := "ringway-" + want + ".tgz"; filepath.Base(file) != name {
			t.Errorf("%s: the file is %s, want %s", version, filepath.Base(file), name)
		}
		c := load(t, file)
		if err := c.Validate(); err != nil || c.Metadata.Version != want || c.Metadata.AppVersion != version {
			t.Errorf("%s: version %q, appVersion %q, %v", version, c.Metadata.Version, c.Metadata.AppVersion, err)
		}
		got := changes(defaults(t, load(t, chartDir)), defaults(t, c))
		if want := images("registry.example.com/ringway", version); lines(got) != lines(want) {
			t.Errorf("%s changes\n%s\nwant\n%s", version, lines(got), lines(want))
		}
	}
	a, err := os.ReadFile(pack(t, "v1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(pack(t, "v1.2.3")); err != nil || !bytes.Equal(a, b) {
		t.Errorf("two runs give different bytes: %v", err)
	}
}
