package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../.."

func TestTheChartIsThatOfTheManifests(t *testing.T) {
	files, err := generate(repository)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(repository, path))
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the manifests give (%v): run make generate", path, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(repository, "deploy/helm/ringway/templates/*.yaml"))
	if err != nil || len(there) != len(templates) {
		t.Errorf("%d templates are there, %d are generated: %v", len(there), len(templates), err)
	}
	// The namespace comes from Helm, and the kustomization has no objects.
	manifests, err := filepath.Glob(filepath.Join(repository, "deploy/kubernetes/*.yaml"))
	if err != nil || len(manifests) != len(templates)+2 {
		t.Errorf("%d manifests for %d templates: %v", len(manifests), len(templates), err)
	}
}

func TestAChangedManifestCannotLoseAValue(t *testing.T) {
	one := template{file: "x.yaml", edits: []edit{{"replicas: 3\n", 1, "replicas: " + value("relays.replicas") + "\n"}}}
	for manifest, want := range map[string]string{
		"replicas: 3\n":              "",
		"replicas: 4\n":              "is there 0 times, want 1",
		"replicas: 3\nreplicas: 3\n": "is there 2 times, want 1",
		"replicas: 3\na: '{{ b }}'":  "contains {{",
	} {
		out, err := one.apply(manifest)
		if want == "" && (err != nil || !strings.HasSuffix(out, "replicas: {{ toJson .Values.relays.replicas }}\n")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %q, %v, want %q", manifest, out, err, want)
		}
	}
}
