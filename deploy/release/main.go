package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binaries are the directories in cmd; the installed names are below.
var binaries = []string{"relay", "worker"}

// installed is the name under which a release installs a binary. "worker" alone is a file
// manager in Debian.
func installed(binary string) string { return "ringway-" + binary }

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// release is one run.
type release struct {
	out      string
	version  string // what `version` prints
	packaged string // the version of archives and packages
	date     time.Time
	host     string // the stage with binaries that run on this machine
}

func main() {
	version := flag.String("version", "devel", "the version, as git describe prints it")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "the systems to build for; empty: only the charts")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: release [--version V] [--platforms OS/ARCH,…] DIRECTORY; run it at the root of the repository")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *version, *platforms); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(out, version, list string) error {
	var platforms []platform
	for item := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		system, arch, ok := strings.Cut(item, "/")
		if !ok || system == "" || arch == "" {
			return fmt.Errorf("platform %q: want OS/ARCH, such as linux/amd64", item)
		}
		platforms = append(platforms, platform{system, arch})
	}
	date, err := commitDate()
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	// A file of an earlier run would get into the checksums.
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	stages := filepath.Join(out, ".stage")
	r := &release{out: out, version: version, packaged: packageVersion(version, date), date: date}
	for _, name := range []string{"ringway", "ringway-worker"} {
		if err := r.chart(name, filepath.Join(stages, "chart", name)); err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
	}
	// Man pages and completions come from binaries that run here.
	host := platform{runtime.GOOS, runtime.GOARCH}
	r.host = filepath.Join(stages, host.String())
	if len(platforms) > 0 {
		if err := r.build(host, r.host); err != nil {
			return err
		}
	}
	for _, p := range platforms {
		if err := r.make(p, filepath.Join(stages, p.String())); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := os.RemoveAll(stages); err != nil {
		return err
	}
	return checksums(out)
}

// commitDate is SOURCE_DATE_EPOCH, or the date of the commit.
func commitDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := output(exec.Command("git", "log", "-1", "--format=%ct"))
		if err != nil {
			return time.Time{}, fmt.Errorf("read the date of the commit, which SOURCE_DATE_EPOCH replaces outside of a checkout: %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: want seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// make builds everything for one platform.
func (r *release) make(p platform, stage string) error {
	if stage != r.host {
		if err := r.build(p, stage); err != nil {
			return err
		}
	}
	if err := r.documents(stage); err != nil {
		return err
	}
	linked, err := r.modules(p, stage)
	if err != nil {
		return err
	}
	if err := linked.writeNotices(filepath.Join(stage, "THIRD_PARTY_NOTICES.txt")); err != nil {
		return err
	}
	name := filepath.Join(r.out, "ringway_"+r.packaged+"_"+p.String())
	if err := r.writeSBOM(name+".spdx.json", p, linked); err != nil {
		return err
	}
	if p.os == "linux" {
		if err := copyFiles(filepath.Join(stage, "systemd"), "deploy/systemd/*"); err != nil {
			return err
		}
	}
	if err := normalise(stage, r.date); err != nil {
		return err
	}
	if err := r.archive(name+".tar.gz", filepath.Base(name), stage); err != nil {
		return err
	}
	if p.os != "linux" {
		return nil
	}
	for _, format := range []string{"deb", "rpm"} {
		cmd := exec.Command("go", "tool", "-modfile=.ci/release.mod", "nfpm", "package",
			"--config", "deploy/packages/ringway.yaml", "--packager", format, "--target", r.out)
		cmd.Env = append(os.Environ(), "GOWORK=off", "ARCH="+p.arch, "VERSION="+r.packaged, "STAGE="+stage,
			"SOURCE_DATE_EPOCH="+strconv.FormatInt(r.date.Unix(), 10))
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// build compiles both binaries into the stage. GOWORK=off gives the dependencies of
// `go install`.
func (r *release) build(p platform, stage string) error {
	args := []string{"build", "-trimpath", "-buildvcs=auto", "-o", stage + string(filepath.Separator),
		"-ldflags", "-s -w -buildid= -X github.com/ringway/ringway/internal/process.version=" + r.version}
	for _, b := range binaries {
		args = append(args, "./cmd/"+b)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	if _, err := output(cmd); err != nil {
		return err
	}
	for _, b := range binaries {
		if err := os.Rename(filepath.Join(stage, b), filepath.Join(stage, installed(b))); err != nil {
			return err
		}
	}
	return nil
}

// shells are the shells with completions, and the names that they expect of the files.
var shells = map[string]string{"bash": "%s", "zsh": "_%s", "fish": "%s.fish"}

// documents writes man pages and completions, and copies what explains the release.
func (r *release) documents(stage string) error {
	for _, b := range binaries {
		binary := filepath.Join(r.host, installed(b))
		if _, err := output(exec.Command(binary, "man", filepath.Join(stage, "man"))); err != nil {
			return err
		}
		for shell, name := range shells {
			script, err := output(exec.Command(binary, "completion", shell))
			if err != nil {
				return err
			}
			file := filepath.Join(stage, "completions", shell, fmt.Sprintf(name, installed(b)))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, script, 0o644)); err != nil {
				return err
			}
		}
	}
	return copyFiles(stage, "LICENSE", "README.md", "CHANGELOG.md")
}

// copyFiles copies the files that match to a directory. A pattern without a match is an error.
func copyFiles(dir string, patterns ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return fmt.Errorf("copy %s: no such file (%v); run the release at the root of the repository", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// checksums writes checksums.txt as sha256sum reads it.
func checksums(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []string
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), f.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(dir, "checksums.txt"), []byte(strings.Join(lines, "")), 0o644)
}

// output runs a command that must succeed.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, stderr.String(), out)
	}
	return out, nil
}

// described is what git describe prints: a tag, commits since the tag, the commit, and
// whether the checkout is changed.
var described = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+?))??(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)

// packageVersion is the version for archives and packages. Debian and RPM compare them:
// `~` sorts before the release, `+` behind it, and `-` is not allowed.
func packageVersion(version string, date time.Time) string {
	m := described.FindStringSubmatch(version)
	if m == nil { // no tag: before every release, by date
		text := regexp.MustCompile(`[^0-9A-Za-z.]+`).ReplaceAllString(version, ".")
		return "0.0.0~" + date.UTC().Format("20060102.150405") + "." + text
	}
	out := m[1]
	if m[2] != "" {
		out += "~" + m[2]
	}
	if m[3] != "" {
		out += "+" + m[3] + "." + m[4]
	}
	if m[5] != "" {
		out += "+dirty"
	}
	return out
}
