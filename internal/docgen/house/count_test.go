package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const page = `### Ground
- [` + "`ring`" + `](../ring/doc.go): orders.
### Requests
- [` + "`internal/proxy`" + `](../internal/proxy/doc.go): carries.
- [` + "`internal/relay/tls`" + `](../internal/relay/tls/doc.go): ends TLS.
### Processes
- [` + "`internal/relay`" + `](../internal/relay/doc.go): starts.
### Commands
- [` + "`cmd/relay`" + `](../cmd/relay/main.go): the binary.
`

func TestAHouseIsCountedByPackageAndEachImportUpwardsIsFound(t *testing.T) {
	repository := t.TempDir()
	for file, text := range map[string]string{
		architecture: page,
		"ring/ring.go": `// Package ring orders.
package ring

import _ "github.com/ringway/ringway/internal/proxy"

/* Order has
two lines. */
func Order() string { // beside code
	return ` + "`a\nb`" + `
}

type T[K any] struct{ Field int }

func (*T[K]) Do() {}
func (hidden) No() {}

type hidden int

const A, b = 1, 2
`,
		"ring/ring_test.go":         "package ring\n\n// One.\nvar X int\n",
		"ring/testdata/a.go":        "not Go",
		"internal/proxy/p.go":       "package proxy\n\nimport (\n_ \"github.com/ringway/ringway/internal/relay/tls\"\n_ \"github.com/ringway/ringway/ring\"\n)\n",
		"internal/relay/relay.go":   "package relay\n\nimport _ \"github.com/ringway/ringway/internal/relay/tls\"\n",
		"internal/relay/tls/tls.go": "package tls\n" + strings.Repeat("\n", longFile),
		"cmd/relay/main.go":         "package main\n\nimport _ \"github.com/ringway/ringway/internal/relay\"\n\nfunc Main() {}\n",
	} {
		file = filepath.Join(repository, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := count(repository)
	if err != nil {
		t.Fatal(err)
	}
	if got := *h.rooms["ring"]; got.exported != 4 || got.code != 11 || got.comments != 3 || got.tests != 3 {
		t.Errorf("ring: %+v", got)
	}
	if got := h.rooms["cmd/relay"].exported; got != 0 {
		t.Errorf("a program exports %d names", got)
	}
	if want := []string{"internal/proxy -> internal/relay/tls", "ring -> internal/proxy"}; !slices.Equal(h.up, want) {
		t.Errorf("imports upwards: %q, want %q", h.up, want)
	}
	if want := []string{"internal/relay/tls/tls.go: 501 lines"}; !slices.Equal(h.long, want) {
		t.Errorf("long files: %q, want %q", h.long, want)
	}
	var out strings.Builder
	if err := h.write(&out); err != nil || !strings.Contains(out.String(), "5 packages") || !strings.Contains(out.String(), "imports upwards: 2\n") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
