package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/membership/identity"
)

// statusNames has the names of net/http that answers of a relay's own have.
var statusNames = map[string]int{
	"StatusBadRequest": http.StatusBadRequest, "StatusMethodNotAllowed": http.StatusMethodNotAllowed, "StatusForbidden": http.StatusForbidden, "StatusNotFound": http.StatusNotFound, "StatusBadGateway": http.StatusBadGateway,
	"StatusServiceUnavailable": http.StatusServiceUnavailable, "StatusGatewayTimeout": http.StatusGatewayTimeout,
	"StatusTooManyRequests": http.StatusTooManyRequests, "StatusMisdirectedRequest": http.StatusMisdirectedRequest,
}

// relayCodes are the codes of answers of the relay's own, from the source of package wire,
// and their status, from the source of package ingress, which no other package may import.
func relayCodes(t *testing.T) map[string]int {
	t.Helper()
	texts, codes := map[string]string{}, map[string]int{}
	read := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			kind, _ := n.Type.(*ast.Ident)
			if kind != nil && kind.Name == "Code" && len(n.Values) == 1 {
				texts[n.Names[0].Name], _ = strconv.Unquote(n.Values[0].(*ast.BasicLit).Value)
			}
		case *ast.KeyValueExpr:
			key, _ := n.Key.(*ast.SelectorExpr)
			value, _ := n.Value.(*ast.SelectorExpr)
			if key != nil && value != nil && strings.HasPrefix(key.Sel.Name, "Code") {
				status, ok := statusNames[value.Sel.Name]
				if !ok {
					t.Fatalf("http.%s: add it to statusNames", value.Sel.Name)
				}
				codes[key.Sel.Name] = status
			}
		}
		return true
	}
	for _, path := range []string{"wire/wire.go", "proxy/ingress/failure.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, "internal", filepath.FromSlash(path)), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, read)
	}
	out := map[string]int{}
	for name, text := range texts {
		out[text] = codes[name]
	}
	if len(out) < 6 || slices.Contains(slices.Collect(maps.Values(out)), 0) {
		t.Fatalf("codes in wire.go and statuses in failure.go: %v", out)
	}
	return out
}

// errorsSection is the part of errors.md between two texts; to its end without to.
func errorsSection(t *testing.T, from, to string) string {
	t.Helper()
	source, err := os.ReadFile("reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(source), from)
	part, _, found := strings.Cut(rest, to)
	switch {
	case ok && to == "":
		return rest
	case !ok || !found:
		t.Fatalf("errors.md has no %q, or no %q behind it", from, to)
	}
	return part
}

// codeRows are the rows of a table: the code in the first cell, and the second cell.
func codeRows(section string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(cells[1], -1) {
			out[m[1]] = strings.TrimSpace(cells[2])
		}
	}
	return out
}

func TestTheErrorsPageHasEveryCodeWithItsStatus(t *testing.T) {
	want := map[string]string{}
	for code, status := range relayCodes(t) {
		want[code] = strconv.Itoa(status)
	}
	if got := codeRows(errorsSection(t, "## Requests\n", "\n## ")); !maps.Equal(got, want) {
		t.Errorf("errors.md has %v, the relay %v", got, want)
	}
}

func TestTheErrorsPageHasEveryCodeOfTheAdminAPI(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(repository, "internal", "process", "access.go"))
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, m := range regexp.MustCompile(`(?m)^\trefused\w+ += "([^"]+)"$`).FindAllStringSubmatch(string(source), -1) {
		codes = append(codes, m[1])
	}
	slices.Sort(codes)
	if got := slices.Sorted(maps.Keys(codeRows(errorsSection(t, "## Admin API\n", "\n## ")))); len(codes) < 6 || !slices.Equal(got, codes) {
		t.Errorf("of the admin API errors.md has %q, package node %q", got, codes)
	}
}

func TestTheErrorsPageHasEveryReasonOfARefusal(t *testing.T) {
	keys := func(from, to string) []string { return slices.Sorted(maps.Keys(codeRows(errorsSection(t, from, to)))) }
	var certificate []string
	for _, reason := range identity.Reasons() {
		certificate = append(certificate, string(reason))
	}
	slices.Sort(certificate)
	if got := keys("Of a certificate,", ""); !slices.Equal(got, certificate) {
		t.Errorf("of certificates errors.md has %q, package identity %q", got, certificate)
	}

	source, err := os.ReadFile(filepath.Join(repository, "membership", "refusals.go"))
	if err != nil {
		t.Fatal(err)
	}
	fields := handshake.PendingReasons()
	for _, m := range regexp.MustCompile(`(?m)^\tfield\w+ += "([^"]+)"$`).FindAllStringSubmatch(string(source), -1) {
		fields = append(fields, strings.ReplaceAll(m[1], " ", "_")) // as the label of the metric is
	}
	slices.Sort(fields)
	if got := keys("In the hello,", "Of a certificate,"); len(fields) < 8 || !slices.Equal(got, fields) {
		t.Errorf("of the hello errors.md has %q, package membership %q", got, fields)
	}
}

func TestTheErrorsPageHasTheExitCodes(t *testing.T) {
	exit := func(args ...string) int {
		root := relaycmd.Command()
		root.SetArgs(args)
		return command.Run(root)
	}
	documented := regexp.MustCompile(`(?m)^\| ([0-9]) \|`).FindAllStringSubmatch(errorsSection(t, "## Command line\n", "\n## "), -1)
	var codes []int
	for _, m := range documented {
		n, _ := strconv.Atoi(m[1])
		codes = append(codes, n)
	}
	if got := []int{exit("version"), exit("config", "validate", "--cluster", ""), exit("config", "show", "no-such-setting", "--cluster", "a", "--environment", "b")}; !slices.Equal(got, codes) {
		t.Errorf("the binary ends with %v, errors.md says %v", got, codes)
	}
}

func TestARowOfATableIsTakenApart(t *testing.T) {
	got := codeRows("| code | status |\n|---|---|---|\n| `a`, `b` | 400 | `x` |\n| none | 1 | 2 |\nno `table`\n")
	if want := map[string]string{"a": "400", "b": "400"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
