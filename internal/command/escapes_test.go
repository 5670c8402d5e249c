package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/settings"
)

// hostileJSON is what a hostile process makes of a document: also bytes that are not UTF-8, and
// the character DEL, which JSON allows unescaped.
func hostileJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types are those of the API
	}
	text = bytes.ReplaceAll(text, []byte(`\ufffd`), []byte("\xff\x9b2J"))
	return bytes.ReplaceAll(text, []byte("forged"), []byte("forged\x7f"))
}

// hostileDocuments are the answers to the paths below /api/v1, by the last part of the path.
func hostileDocuments(process string) map[string]any {
	documents := map[string]any{
		"members": filled[api.Members](), "departures": filled[api.Departures](), "config": filled[api.Config](),
		"version": map[string]string{"version": evil}, "checksum": filled[api.Checksum](), "goroutines": evil, "shared-key": evil,
		"services": filled[api.Services](), "plan": filled[api.Plan](), "explain": filled[api.Explanation](), "route": filled[api.Route](),
		"traffic": filled[api.Traffic](), "fleet": filled[api.Fleet](), "rebalance": filled[api.Rebalance](), "check": filled[api.Report](),
		"keys": filled[api.Keys](), "blocks": filled[api.Blocks](), "drain": filled[api.Drain](), "undrain": filled[api.Drain](), "reload": filled[api.Reload](),
		"healthz": filled[api.Health](), "readyz": filled[api.Health](), "x": filled[api.Service](),
	}
	if process == "worker" {
		documents["services"], documents["reload"] = filled[api.WorkerServices](), filled[api.WorkerReload]()
		documents["drain"], documents["undrain"] = filled[api.WorkerServices](), filled[api.WorkerServices]()
	}
	return documents
}

// The ways in which a hostile process answers.
const (
	answersEvil = "in every text of its answers"
	failsEvil   = "in its errors"
	noJSON      = "in answers that are no JSON"
)

// hostileAdmin returns the address of an admin API that sends escapes.
func hostileAdmin(t *testing.T, process, how string) string {
	documents := hostileDocuments(process)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch how {
		case failsEvil:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write(hostileJSON(filled[api.Error]()))
			return
		case noJSON:
			_, _ = w.Write([]byte(evil + "\n" + evil + "\n"))
			return
		}
		switch {
		case last == "tap":
			record := map[string]any{"ringway.attempts": []map[string]string{{"endpoint": evil, "failure": evil}}, "http.response.status_code": 200}
			for _, field := range []string{"ringway.request.id", "ringway.relay", "ringway.forwarded_by", "ringway.caller", "http.request.method", "url.path", "url.query", "rpc.response.status_code", "ringway.outcome", "error.type"} {
				record[field] = evil
			}
			_, _ = w.Write(append(hostileJSON(record), '\n'))
			if r.URL.Path == "/api/v1/tap" { // top counts until its window ends
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		case last == "monitor":
			line := map[string]any{evil: evil, "level": evil, "time": evil, "message": evil, "member": []string{evil}, "caller": evil}
			_, _ = w.Write(append(hostileJSON(line), '\n'))
		case last == "rebalance" && r.Method == http.MethodPost:
			for _, state := range []string{api.RebalanceRunning, api.RebalanceDone} {
				answer := filled[api.Rebalance]()
				answer.State, answer.AskInstead = state, nil
				_, _ = w.Write(append(hostileJSON(answer), '\n'))
			}
		case r.URL.Query().Has(whatIfFlag):
			_, _ = w.Write(hostileJSON(filled[api.PlanChange]()))
		case strings.Contains(r.URL.Path, "/requests/"):
			_, _ = w.Write(hostileJSON(filled[api.ExplainedRequest]()))
		default:
			document, known := documents[last]
			if !known {
				document = documents["x"] // of a service, whose name is another each time
			}
			_, _ = w.Write(hostileJSON(document))
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// asking are the commands that ask a process, with their arguments. A command that is not in it
// fails the test below.
var asking = map[string][]string{
	"relay members": {"", "--all"}, "relay services": {"", "x", "--all"}, "relay top": {"--once --interval 50ms", "--once --interval 50ms --by worker", "--once --interval 50ms --by caller"},
	"relay plan": {"x", "--what-if m=4", "x --what-if m=4"}, "relay explain": {"x", "x --worker w"}, "relay route": {"x"}, "relay explain-request": {"x"},
	"relay check": {""}, "relay monitor": {""}, "relay tap": {"x", "x --all"}, "relay debug bundle": {"--log-for 50ms"}, "relay health": {"", "--ready"},
	"relay keys list": {""}, "relay keys install": {"KEYFILE"}, "relay keys use": {"x"}, "relay keys remove": {"x"},
	"relay block add": {"--caller x", "--caller x --all"}, "relay block list": {""}, "relay block remove": {"--caller x"},
	"relay drain": {""}, "relay undrain": {""}, "relay rebalance": {"x --dry-run", "x", "x --all"}, "relay reload": {""}, "relay config show": {"--running"},
	"worker members": {""}, "worker services": {""}, "worker monitor": {""}, "worker debug bundle": {"--log-for 50ms"}, "worker health": {"", "--ready"},
	"worker drain": {""}, "worker undrain": {""}, "worker reload": {""}, "worker config show": {"--running"},
}

// commandTree returns the command line of a binary, which starts nothing.
func commandTree(process string) *cobra.Command {
	d := &Daemon{Name: process, Settings: settings.New(process, "RINGWAY"), AdminPort: "1"}
	settings.String(d.Settings, new(string), settings.Spec{Name: "admin-addr", Usage: "address"})
	if process == "worker" {
		return WorkerTree(d)
	}
	return RelayTree(d)
}

// TestNoAnswerOfAProcessCommandsTheTerminal runs every command that asks a process, in each of
// its forms, against one that puts escapes into everything.
func TestNoAnswerOfAProcessCommandsTheTerminal(t *testing.T) {
	key := filepath.Join(t.TempDir(), "next.key")
	if err := os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, process := range []string{"relay", "worker"} {
		servers := map[string]string{}
		for _, how := range []string{answersEvil, failsEvil, noJSON} {
			servers[how] = hostileAdmin(t, process, how)
		}
		for c := range Tree(commandTree(process)) {
			path := c.CommandPath()
			local := c.Flags().Lookup("admin-addr") == nil && c.InheritedFlags().Lookup("admin-addr") == nil
			if !c.Runnable() || c.HasSubCommands() || local || slices.Contains([]string{process + " run", process + " config validate", process + " config init", process + " config schema", process + " keys generate", process + " keys import"}, path) {
				continue
			}
			if len(asking[path]) == 0 {
				t.Errorf("%s asks a process and is not tried here", path)
			}
			for _, args := range asking[path] {
				for how, addr := range servers {
					shown := strings.Contains(args, "--all") || strings.HasSuffix(path, "bundle") // ends with the first hostile address, or in a file
					for _, form := range []string{formTable, formWide, formJSON, formYAML, formText} {
						line := strings.Fields(path + " " + strings.ReplaceAll(args, "KEYFILE", key) + " --admin-addr " + addr)
						switch file := filepath.Join(t.TempDir(), "bundle"); {
						case strings.HasSuffix(path, "bundle"):
							line = append(line, "-o", file)
						case !strings.HasSuffix(path, "health"):
							line = append(line, "-o", form)
						}
						said := ask(t, process, line[1:])
						safe(t, strings.Join(line, " ")+", escapes "+how, said)
						shown = shown || strings.Contains(said, "[2J")
					}
					if !shown && how == answersEvil {
						t.Errorf("%s %s shows nothing of what the process says: this test proves nothing about it", path, args)
					}
				}
			}
		}
	}
}

// ask runs a command and returns what it writes.
func ask(t *testing.T, process string, args []string) string {
	var out bytes.Buffer
	root := commandTree(process)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		fmt.Fprint(&out, failure(root, err))
	}
	return out.String()
}

// safe expects that a text has no character that a terminal obeys, and no line that a process
// has made up.
func safe(t *testing.T, what, said string) {
	t.Helper()
	for line := range strings.SplitSeq(said, "\n") {
		bad := strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' })
		if bad || !utf8.ValidString(line) {
			t.Errorf("%s: a line is %.200q", what, line)
			return
		}
	}
}

// TestAnswersKeepTheirMeaningInEveryForm compares the documents that scripts read with the answer
// of the process.
func TestAnswersKeepTheirMeaningInEveryForm(t *testing.T) {
	const odd = "a\u009b2J b\u202e c\U000e0041 d\x7f e\t f\\u001b g\" h\u2028"
	want := api.Services{Relay: odd, Services: []api.ListedService{{ServiceSummary: api.ServiceSummary{Service: "größe"}}}}
	text, err := document(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{formJSON, formYAML} {
		var out bytes.Buffer
		if err := (&form{output: output}).show(&out, text, nil); err != nil {
			t.Fatal(err)
		}
		safe(t, output, out.String())
		got := decodeForm(t, output, out.Bytes())
		if got.Relay != odd || len(got.Services) != 1 || got.Services[0].Service != "größe" {
			t.Errorf("%s: %q became %q:\n%s", output, odd, got.Relay, &out)
		}
		if !strings.Contains(out.String(), "größe") {
			t.Errorf("%s escapes what is printable:\n%s", output, &out)
		}
	}
}

// decodeForm reads a document as a script would.
func decodeForm(t *testing.T, output string, text []byte) (got api.Services) {
	t.Helper()
	if output == formYAML {
		var any map[string]any
		if err := yaml.Unmarshal(text, &any); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		var err error
		if text, err = json.Marshal(any); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return got
}
