package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/ringway/ringway/internal/relay/check"
)

var tallied = regexp.MustCompile(`(?m)^relay-1: (\d+) fine, (\d+) to watch, (\d+) broken$`)

// Each check reports one line about the fleet of the quickstart: what is fine, or what it finds
// about the only relay or the only service.
func TestTheQuickstartCountsEveryCheck(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "docs", "quickstart.md"))
	if err != nil {
		t.Fatal(err)
	}
	tally := tallied.FindSubmatch(page)
	if tally == nil {
		t.Fatal("docs/quickstart.md has no last line of relay check")
	}
	sum := 0
	for _, digits := range tally[1:] {
		n, err := strconv.Atoi(string(digits))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if checks := len(check.Names()); sum != checks {
		t.Errorf("docs/quickstart.md: %q counts %d findings, want %d: run its commands, and copy what they print", tally[0], sum, checks)
	}
}
