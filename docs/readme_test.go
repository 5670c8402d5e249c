package docs_test

import (
	"os"
	"strings"
	"testing"
)

func TestTheReadmeShowsTheExampleThatCompiles(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const path = "docs/examples/relay/main.go"
	code, err := os.ReadFile("examples/relay/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "<!-- "+path+" -->\n```go\n")
	if !ok {
		t.Fatalf("the README has no block marked %s", path)
	}
	block, _, _ = strings.Cut(block, "```\n")
	if block != string(code) {
		t.Fatalf("the README's example differs from %s: copy the file into the block", path)
	}
}
