package deploy_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// bake is the definition of the images for several processors. It has no output: with one,
// docker buildx bake --push would not push.
type bake struct {
	Variable map[string]struct{ Default string }
	Group    map[string]struct{ Targets []string }
	Target   map[string]struct {
		Inherits, Platforms, Tags   []string
		Context, Dockerfile, Target string
		Labels                      map[string]string
	}
}

func TestImagesForSeveralProcessorsAreThoseOfTheDockerfile(t *testing.T) {
	var b bake
	decoder := json.NewDecoder(bytes.NewReader(read(t, "bake.json")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		t.Fatal(err)
	}
	dockerfile, makefile := string(read(t, "Dockerfile")), string(read(t, "../Makefile"))
	var stages []string
	for _, s := range stage.FindAllStringSubmatch(dockerfile, -1) {
		stages = append(stages, s[2])
	}
	if len(stages) != 3 || !slices.Equal(b.Group["default"].Targets, stages) {
		t.Errorf("targets %v, stages %v", b.Group["default"].Targets, stages)
	}
	for _, s := range stages {
		target := b.Target[s]
		if target.Target != s || !slices.Equal(target.Inherits, []string{"common"}) || !slices.Equal(target.Tags, []string{"${IMAGE}-" + s + ":${TAG}"}) {
			t.Errorf("%s: %+v", s, target)
		}
	}
	// The path of the Dockerfile is relative to the context.
	common := b.Target["common"]
	if filepath.Join(common.Context, common.Dockerfile) != "deploy/Dockerfile" || common.Labels["org.opencontainers.image.version"] != "${VERSION}" {
		t.Errorf("%+v", common)
	}
	if !strings.Contains(makefile, "-o "+common.Context+"/$(ARCH)/ ") || !strings.Contains(makefile, "docker buildx bake --file deploy/bake.json") {
		t.Error("make images does not build what bake.json copies")
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(common.Platforms, want) || !strings.Contains(makefile, "for arch in amd64 arm64; do $(MAKE) --no-print-directory image-binaries") {
		t.Errorf("platforms %v, want %v, and make images the same", common.Platforms, want)
	}
	for name := range b.Variable {
		if !strings.Contains(makefile, name+"='$("+name+")'") {
			t.Errorf("make images does not set %s", name)
		}
	}
	// A stage that runs something would need an emulator for the other processor.
	if strings.Contains(dockerfile, "\nRUN ") {
		t.Error("a stage of the Dockerfile runs a program")
	}
}

// The images of this machine's processor are those of make test-containers.
func TestToolsBuildStaticBinariesForImagesOfAnotherProcessor(t *testing.T) {
	needTools(t)
	const version = "v98.76.54-image"
	arch, machine := "arm64", elf.EM_AARCH64
	if runtime.GOARCH == arch {
		arch, machine = "amd64", elf.EM_X86_64
	}
	dir := t.TempDir()
	// The command of the Makefile, with another directory and version.
	command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "image-binaries", "ARCH="+arch, "VERSION="+version)
	command.Dir = ".."
	script, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(string(script), "bin/image/"+arch, dir))
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	for _, name := range []string{"relay", "worker", "echo"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if file.Machine != machine {
			t.Errorf("%s is for %v, want %v", name, file.Machine, machine)
		}
		for _, p := range file.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s needs a loader or a library: an image from scratch has none", name)
			}
		}
		if name != "echo" && !bytes.Contains(content, []byte(version)) {
			t.Errorf("%s has no version", name)
		}
	}
}
