package process

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheVersionIsTheReleasesThenTheModulesThenDevel(t *testing.T) {
	module := &debug.BuildInfo{Main: debug.Module{Version: "v1.1.0"}}
	local := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}
	for _, test := range []struct {
		override string
		info     *debug.BuildInfo
		want     string
	}{
		{"v1.2.3", module, "v1.2.3"},
		{"", module, "v1.1.0"},
		{"", local, "devel"},
		{"", nil, "devel"},
	} {
		if got := readBuild(test.override, test.info).Version; got != test.want {
			t.Errorf("override %q: got %q, want %q", test.override, got, test.want)
		}
	}
	if Version() == "" {
		t.Error("the test binary has no version")
	}
}

func TestABuildShowsCommitAndChanges(t *testing.T) {
	build := readBuild("v1.2.3", &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"},
	}})
	if got := build.String(); !strings.HasPrefix(got, "v1.2.3 (1a2b3c4d5e6f, modified, go1.") {
		t.Errorf("got %q", got)
	}
	if build.Time != "2026-01-02T03:04:05Z" {
		t.Errorf("time is %q", build.Time)
	}
	if got := readBuild("", nil).String(); !strings.HasPrefix(got, "devel (go1.") {
		t.Errorf("got %q", got)
	}
}
