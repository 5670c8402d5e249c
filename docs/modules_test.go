package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dependencies are the modules, with versions, from which go builds and tests the root module.
// workspace is the value of GOWORK: "off" is what a program that embeds Ringway gets.
func dependencies(t *testing.T, workspace string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "./...")
	list.Dir, list.Env = repository, append(os.Environ(), "GOWORK="+workspace)
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", list, err, stderr.String())
	}
	modules := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(modules)
	return slices.Compact(modules)
}

func TestProgramsThatEmbedRingwayDoNotInheritPlotting(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required, used := string(file), dependencies(t, "off")
	if len(used) < 20 {
		t.Fatalf("go list reports only the modules %q", used)
	}
	simulations, err := os.ReadFile(filepath.Join(repository, "sims", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// gonum/plot and the modules that it requires.
	for _, of := range []string{"gonum.org/", "codeberg.org/go-", "git.sr.ht/~sbinet/", "github.com/ajstarks/svgo", "github.com/golang/freetype", "golang.org/x/image"} {
		if strings.Contains(required, of) {
			t.Errorf("go.mod requires %s, which only the simulations need", of)
		}
		if !strings.Contains(string(simulations), of) {
			t.Errorf("sims/go.mod does not require %s: remove the row from this test", of)
		}
	}
	for _, m := range used {
		if strings.HasPrefix(m, "gonum.org/") || strings.HasPrefix(m, "github.com/ringway/ringway/") {
			t.Errorf("a package of the root module imports %s", m)
		}
	}
}

// A workspace has the highest version that any of its modules requires.
func TestTheWorkspaceHasTheVersionsOfTheRootModule(t *testing.T) {
	// Empty is the go.work of this repository.
	if want, got := dependencies(t, "off"), dependencies(t, ""); !slices.Equal(got, want) {
		t.Errorf("a checkout does not build what go install builds: go.work gives\n%q\ninstead of\n%q", got, want)
	}
}
