package daemon

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is set by release builds:
//
//	go build -ldflags "-X github.com/ringway/ringway/internal/daemon.version=v1.2.3"
var version string

// Build describes the running binary. Fields that are not known are empty.
type Build struct {
	Version  string `json:"version" yaml:"version"`   // "v1.2.3", or "devel" for a local build
	Revision string `json:"revision" yaml:"revision"` // the git commit, 12 digits
	Time     string `json:"time" yaml:"time"`         // the commit's time, RFC 3339
	Modified bool   `json:"modified" yaml:"modified"` // built from a changed checkout
	Go       string `json:"go" yaml:"go"`             // for example "go1.26.8"
	Platform string `json:"platform" yaml:"platform"` // for example "linux/amd64"
}

// Version returns the short version: what the release build set, else the
// module version, else "devel".
func Version() string { return ReadBuild().Version }

// ReadBuild reads what the linker and the go command stamped into the binary.
func ReadBuild() Build {
	info, _ := debug.ReadBuildInfo() // nil in a binary built without module support
	return readBuild(version, info)
}

func readBuild(override string, info *debug.BuildInfo) Build {
	build := Build{Version: override, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if build.Version == "" && info.Main.Version != "(devel)" {
			build.Version = info.Main.Version
		}
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				build.Revision = setting.Value[:min(12, len(setting.Value))]
			case "vcs.time":
				build.Time = setting.Value
			case "vcs.modified":
				build.Modified = setting.Value == "true"
			}
		}
	}
	if build.Version == "" {
		build.Version = "devel"
	}
	return build
}

// String returns one line, for example "v1.2.3 (1a2b3c4d5e6f, go1.26.8, linux/amd64)".
func (b Build) String() string {
	details := make([]string, 0, 4)
	if b.Revision != "" {
		details = append(details, b.Revision)
	}
	if b.Modified {
		details = append(details, "modified")
	}
	details = append(details, b.Go, b.Platform)
	return fmt.Sprintf("%s (%s)", b.Version, strings.Join(details, ", "))
}
