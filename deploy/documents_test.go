package deploy_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	shell = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	link  = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	query = regexp.MustCompile("(?s)```promql\n(.*?)```|`([^`\n]*ringway_[^`\n]*)`")
)

// pages are the documents about these files.
func pages(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"../docs/operations/*.md", "../docs/how-to/kubernetes.md", "../docs/how-to/compose.md", "../docs/how-to/systemd.md", "../docs/how-to/install.md", "../docs/how-to/upgrade.md", "../docs/how-to/large-fleets.md", "../docs/how-to/pki.md", "../docs/how-to/key-rotation.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		paths = append(paths, found...)
	}
	return paths
}

func TestCommandsInTheDocumentsExist(t *testing.T) {
	judged := 0
	for _, path := range pages(t) {
		for _, block := range shell.FindAllStringSubmatch(string(read(t, path)), -1) {
			for line := range strings.Lines(block[1]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
				for _, part := range regexp.MustCompile(`[|;]|&&`).Split(line, -1) {
					words := strings.Fields(part)
					i := slices.IndexFunc(words, func(w string) bool {
						base := strings.TrimPrefix(w[strings.LastIndex(w, "/")+1:], "ringway-")
						return !strings.Contains(w, ".") && (base == "relay" || base == "worker") && !strings.Contains(w, "deploy")
					})
					// Files and units have these names too: a command starts the line, or
					// another command runs it in a container.
					if i < 0 || i > 0 && words[i-1] != "--" && !strings.HasPrefix(words[i], "/relay") && !strings.HasPrefix(words[i], "/worker") {
						continue
					}
					judged++
					if _, err := commandLine(words[i:]); err != nil {
						t.Errorf("%s: %s: %v", path, strings.Join(words[i:], " "), err)
					}
				}
			}
		}
	}
	if judged < 60 {
		t.Errorf("only %d commands were found", judged)
	}
}

func TestMetricsAndLinksInTheDocumentsExist(t *testing.T) {
	metrics := reference(t)
	for _, path := range pages(t) {
		text := string(read(t, path))
		for _, q := range query.FindAllStringSubmatch(text, -1) {
			for _, m := range unknown(metrics, q[1]+q[2]) {
				t.Errorf("%s speaks of %s", path, m)
			}
		}
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if target := filepath.Join(filepath.Dir(path), l[1]); len(globbed(t, target)) == 0 {
				t.Errorf("%s links to %s, which is not there", path, l[1])
			}
		}
	}
}

func globbed(t *testing.T, path string) []string {
	t.Helper()
	found, err := filepath.Glob(path)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// setting is a flag in the text of a document.
var setting = regexp.MustCompile("`--([a-z-]+)")

func TestFlagsInTheDocumentsExist(t *testing.T) {
	flags := string(read(t, "../docs/reference/flags.md"))
	// Flags of commands, which are not settings.
	others := []string{"role", "node", "out", "ready", "watch", "scale", "profile", "for", "admin-identity-template"}
	for _, path := range pages(t) {
		for _, f := range setting.FindAllStringSubmatch(string(read(t, path)), -1) {
			if !strings.Contains(flags, "| `--"+f[1]+"` |") && !slices.Contains(others, f[1]) {
				t.Errorf("%s speaks of --%s", path, f[1])
			}
		}
	}
}
