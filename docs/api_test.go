package docs_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
)

// adminPackages have patterns of the admin API; what is in none of the two binaries'
// own packages is on both.
var adminPackages = []string{"internal/process", "internal/relay", "internal/statuspage", "internal/worker"}

// endpoint is a method and a path of the admin API.
type endpoint struct{ section, method, path string }

func (e endpoint) String() string { return e.section + ": " + e.method + " " + e.path }

// registered finds the patterns that Go source gives to a mux. Those made of a literal
// and a name have {name} for the latter.
func registered(section, source string) (out []endpoint, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); !ok || s.Sel.Name != "Handle" && s.Sel.Name != "HandleFunc" {
			return true
		}
		suffix, pattern := "", call.Args[0]
		if sum, ok := pattern.(*ast.BinaryExpr); ok {
			suffix, pattern = "{name}", sum.X
		}
		literal, ok := pattern.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, _ := strconv.Unquote(literal.Value)
		method, path, ok := strings.Cut(text, " ")
		if !ok {
			method, path = "any", text
		}
		out = append(out, endpoint{section, method, strings.Replace(path+suffix, "{$}", "", 1)})
		return true
	})
	return out, nil
}

// adminSection is the heading in api.md under which a package's paths are.
func adminSection(file string) string {
	switch {
	case strings.HasPrefix(file, "internal/relay/"):
		return "Relay"
	case strings.HasPrefix(file, "internal/worker/"):
		return "Worker"
	}
	return "Every member"
}

var (
	apiRow     = regexp.MustCompile("^\\| ([A-Z]+) \\| `(/[^`]*)` \\| .* \\| (.*) \\|$")
	apiSection = regexp.MustCompile(`^## (.+)$`)
	threeDigit = regexp.MustCompile(`\b[1-5][0-9][0-9]\b`)
)

// documentedAPI are the rows of a page, with the statuses of each.
func documentedAPI(source string) map[endpoint][]int {
	out, section := map[endpoint][]int{}, ""
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		if m := apiSection.FindStringSubmatch(line); m != nil {
			section = m[1]
		}
		if m := apiRow.FindStringSubmatch(line); m != nil {
			var statuses []int
			for _, status := range threeDigit.FindAllString(m[3], -1) {
				n, _ := strconv.Atoi(status)
				statuses = append(statuses, n)
			}
			out[endpoint{section, m[1], m[2]}] = statuses
		}
	}
	return out
}

// differences are what is on one side only, sorted.
func differences(code []endpoint, documented map[endpoint][]int) (out []string) {
	for _, e := range code {
		if _, ok := documented[e]; !ok {
			out = append(out, e.String()+" is not in api.md")
		}
	}
	for e, statuses := range documented {
		if !slices.Contains(code, e) {
			out = append(out, e.String()+" is in api.md only")
		}
		if len(statuses) == 0 {
			out = append(out, e.String()+" has no status")
		}
	}
	slices.Sort(out)
	return out
}

func apiPage(t *testing.T) map[endpoint][]int {
	t.Helper()
	source, err := os.ReadFile("reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return documentedAPI(string(source))
}

func TestTheAPIPageListsEveryPath(t *testing.T) {
	var code []endpoint
	for _, dir := range adminPackages {
		err := filepath.WalkDir(filepath.Join(repository, filepath.FromSlash(dir)), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(repository, path)
			if err != nil {
				return err
			}
			found, err := registered(adminSection(filepath.ToSlash(name)), string(source))
			code = append(code, found...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(code) < 20 {
		t.Fatalf("only %d patterns found in the source: %v", len(code), code)
	}
	for _, problem := range differences(code, apiPage(t)) {
		t.Error(problem)
	}
}

func TestADifferenceOfTheAPIIsFound(t *testing.T) {
	const source = `package x
func handle(mux *http.ServeMux, path string) {
	mux.HandleFunc("GET /a/{name}", nil)
	mux.Handle("POST /b", nil)
	mux.HandleFunc("GET /assets/"+path, nil)
	mux.HandleFunc("/any", nil)
	mux.HandleFunc("GET /{$}", nil)
	other("GET /no", nil)
}`
	code, err := registered("Relay", source)
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedAPI("## Relay\n\n| GET | `/a/{name}` | x | 200, 404 for `y` |\n| GET | `/b` | x | 200 |\n| GET | `/assets/{name}` | x | some |\n## Worker\n| GET | `/` | x | 200 |\n")
	if got := documented[endpoint{"Relay", "GET", "/a/{name}"}]; !slices.Equal(got, []int{200, 404}) {
		t.Errorf("statuses %v", got)
	}
	want := []string{
		"Relay: GET / is not in api.md", "Relay: GET /assets/{name} has no status", "Relay: GET /b is in api.md only",
		"Relay: POST /b is not in api.md", "Relay: any /any is not in api.md", "Worker: GET / is in api.md only",
	}
	if got := differences(code, documented); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A relay alone, which knows no service: every path answers as the page documents that it
// may, and the wrong method is refused.
func TestARelayAnswersAsTheAPIPageDocuments(t *testing.T) {
	f := fleet.New(fleet.Config{Cluster: "docs", Environment: "docs", Insecure: true})
	if err := f.StartRelay("relay-1", nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string) int {
		t.Helper()
		// A path whose answer does not end is asked for its head only.
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(bounded, method, "http://"+f.Relay("relay-1").AdminAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for e, statuses := range apiPage(t) {
		if e.section == "Worker" {
			continue
		}
		path := strings.Replace(e.path, "{name}", "absent", 1)
		if e.path == "/assets/{name}" {
			path = "/assets/page.css"
		}
		got := ask(e.method, path)
		if !slices.Contains(statuses, got) {
			t.Errorf("%s %s: %d, the page has %v", e.method, path, got, statuses)
		}
		if got == http.StatusNotFound && !strings.Contains(e.path, "{name}") {
			continue // not there in this relay, so every method is as little
		}
		if got := ask(map[string]string{"GET": "DELETE", "POST": "PUT"}[e.method], path); got != http.StatusMethodNotAllowed {
			t.Errorf("%s with another method than %s: %d, want 405", path, e.method, got)
		}
	}
	if got := ask("GET", "/api/v1/services/absent"); got != http.StatusNotFound {
		t.Errorf("an unknown service: %d, which is what exit code 2 hangs on", got)
	}
}
