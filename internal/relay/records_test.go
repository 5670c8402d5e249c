package relay

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership/identity"
)

// recordsOf reads the records in a file, whose lines must be whole.
func recordsOf(t *testing.T, path string) (records []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		records = append(records, r)
	}
	return records
}

func TestBothRelaysOfARequestRecordItUnderOneID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(id string) string { return filepath.Join(dir, id+".log") }
	logging := func(s *Settings) { s.RequestLog = file(s.ID) }
	f := newFleet(t)
	affine := f.relay(logging)
	gate := f.relay(func(s *Settings) { logging(s); s.Role = identity.RoleGate })
	f.echo("w1")
	affine.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })
	if resp, body := gate.call(t, http.MethodGet, "/path?q=1", nil, "Ringway-Service: echo", "X-Request-Id: the client's"); resp.StatusCode != 200 {
		t.Fatal(resp.Status, body)
	}
	for _, r := range []*runningRelay{gate, affine} {
		if err := r.stop(); err != nil { // writes the last records
			t.Fatal(err)
		}
	}
	first, second := recordsOf(t, file(gate.id)), recordsOf(t, file(affine.id))
	if len(first) != 1 || len(second) != 1 {
		t.Fatalf("%v\n%v", first, second)
	}
	at := func(r map[string]any) map[string]any { return r["ringway.attempts"].([]any)[0].(map[string]any) }
	id := first[0]["ringway.request.id"]
	if id == "the client's" || id != second[0]["ringway.request.id"] {
		t.Errorf("the IDs are %v and %v", id, second[0]["ringway.request.id"])
	}
	if a := at(first[0]); a["endpoint"] != affine.id || a["chosen_by"] != "relay_pool" || a["status"] != 200.0 {
		t.Errorf("the gate's attempt: %v", a)
	}
	if a := at(second[0]); a["endpoint"] != "w1" || a["chosen_by"] != "p2c" || second[0]["ringway.forwarded_by"] != gate.id || second[0]["client.address"] != "127.0.0.1" {
		t.Errorf("the relay's record: %v", second[0])
	}
	if v := first[0]["ringway.plan.version"]; v == nil || v != second[0]["ringway.plan.version"] {
		t.Errorf("the plans have the versions %v and %v", v, second[0]["ringway.plan.version"])
	}
	if first[0]["url.path"] != "/path" || first[0]["url.query"] != nil {
		t.Errorf("%v", first[0])
	}
}

func TestAReloadOpensTheRequestLogAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "requests.log")
	r := newFleet(t).relay(func(s *Settings) { s.RequestLog = path })
	r.await(t, "its readiness", func() bool { return len(r.Reasons()) == 0 })
	ask := func() { r.call(t, http.MethodGet, "/", nil) } // bad_request
	ask()
	old := path + ".1"
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	r.Reload()
	ask()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if n, m := len(recordsOf(t, old)), len(recordsOf(t, path)); n != 1 || m != 1 {
		t.Errorf("%d records in the old file and %d in the new one, want 1 and 1", n, m)
	}
}

func TestARequestLogThatCannotBeWrittenIsRefusedByRunAndByACheck(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none", "requests.log"), t.TempDir()} {
		s, err := load(t, "--request-log", path, "--gossip-addr", anyPort, "--ingress-addr", anyPort, "--peer-addr", anyPort, "--admin-addr", anyPort)
		if err != nil {
			t.Fatal(err)
		}
		for name, refuses := range map[string]func(Config) error{
			"check": Check,
			"new":   func(cfg Config) error { _, err := New(cfg); return err },
		} {
			cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			if err := refuses(cfg); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := load(t, "--request-log-sample", "2", "--request-log-slow", "-1s", "--request-log-path", "half"); err == nil || !strings.Contains(err.Error(), "request-log-sample") || !strings.Contains(err.Error(), "request-log-slow") || !strings.Contains(err.Error(), "none, path, full") {
		t.Error(err)
	}
}

// A check must not leave a file behind that belongs to the operator and that the relay
// cannot write then.
func TestACheckCreatesNoRequestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests.log")
	s, err := load(t, "--request-log", path)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(cfg); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there")
	}
}

// r1 has no worker that it reaches, and relays to forward to, as when all workers of its zone end.
func TestARelayThatCarriesARequestBecauseNoWorkerCouldIsNotExplainedByTheWorkers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "requests.log")
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.SkipRelays.Set("echo=r1"); s.RequestLog, s.Explanations = path, 5 })
	f.relay(func(s *Settings) { s.SkipRelays.Set("echo=r1") })
	f.echo("w1")
	for _, r := range f.relays {
		r.settled(t, "echo", 1)
	}
	s, _ := r.Routes.Service("echo")
	r.await(t, "a connection to r2", func() bool {
		resp, _ := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
		return resp.StatusCode == 200
	})
	ends := procs.Listen(t)
	procs.Accept(t, ends, func(net.Conn) {})
	dead, err := upstream.NewPool(upstream.Config{Address: ends.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dead.Close)
	relays := s.Route().Forward
	var x api.ExplainedRequest
	r.await(t, "a request that a worker and then r2 gets", func() bool { // the router may replace the route before
		route := &routing.Route{Elsewhere: relays, Range: []*routing.Target{{ID: "w9.1", Node: "w9", Weight: 1, Pool: dead}}}
		if err := s.SetRoute(route, 0); err != nil {
			t.Fatal(err)
		}
		before := len(recordsOf(t, path))
		r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
		var records []map[string]any
		r.await(t, "the record", func() bool { records = recordsOf(t, path); return len(records) > before })
		x = api.ExplainedRequest{}
		r.api(t, "/api/v1/requests/"+records[before]["ringway.request.id"].(string)+"/explain", &x)
		return x.Status == http.StatusOK && len(x.Attempts) == 2
	})
	if worker, relay := x.Attempts[0], x.Attempts[1]; worker.Decision == nil || relay.Endpoint != "r2" || relay.Decision != nil {
		t.Errorf("%+v, then %+v explained by %+v", worker, relay, relay.Decision)
	}
}

func TestTheChoiceOfARequestIsExplainedWhileItIsRemembered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "requests.log")
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.RequestLog, s.Explanations = path, 5 })
	f.echo("w1")
	f.echo("w2")
	r.settled(t, "echo", 2)
	r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
	r.await(t, "the record", func() bool { text, _ := os.ReadFile(path); return len(text) > 0 })
	var x api.ExplainedRequest
	id := recordsOf(t, path)[0]["ringway.request.id"].(string)
	if status, text := r.api(t, "/api/v1/requests/"+id+"/explain", &x); status != http.StatusOK || x.ID != id || x.Status != 200 || len(x.Attempts) != 1 || len(x.Attempts[0].Decision.Candidates) < 2 || x.Attempts[0].Decision.Winner != x.Attempts[0].Endpoint {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.api(t, "/api/v1/requests/a%2Fb/explain", nil); status != http.StatusNotFound || !strings.Contains(text, `a/b`) {
		t.Errorf("%d %s", status, text)
	}
	without := f.relay(func(*Settings) {})
	if status, text := without.api(t, "/api/v1/requests/x/explain", nil); status != http.StatusConflict || !strings.Contains(text, "--request-log-explain") {
		t.Errorf("%d %s", status, text)
	}
}
