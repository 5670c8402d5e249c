package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	adminapi "github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// tapped is an admin API of a relay with this ID that streams lines and ends.
func tapped(t *testing.T, id string, members func() api.Members, lines ...string) (addr string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/services/{name}/tap", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.RelayHeader, id)
		for _, line := range lines {
			_, _ = io.WriteString(w, line+"\n")
		}
		if where := r.URL.Query().Get("where"); where != "" {
			_, _ = fmt.Fprintf(w, `{"url.path":%q}`+"\n", where+" of "+r.PathValue("name"))
		}
	})
	mux.HandleFunc("GET /api/v1/members", func(w http.ResponseWriter, _ *http.Request) { adminapi.WriteJSON(w, http.StatusOK, members()) })
	mux.HandleFunc("GET /api/v1/departures", func(w http.ResponseWriter, _ *http.Request) {
		adminapi.WriteJSON(w, http.StatusOK, api.Departures{})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func runTap(args ...string) (out, notes string, err error) {
	c := command.TapCommand()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(context.Background())
	return stdout.String(), stderr.String(), err
}

// full is an output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestATapWhoseOutputIsFullBlamesNoRelay(t *testing.T) {
	c := command.TapCommand()
	c.SetArgs([]string{"billing", "-o", "json", "--admin-addr", tapped(t, "r1", nil, `{"ringway.relay":"r1"}`)})
	c.SetOut(full{})
	c.SetErr(io.Discard)
	c.SilenceUsage = true
	if err := c.ExecuteContext(t.Context()); !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "ended the stream") {
		t.Errorf("%v, want the error of the output", err)
	}
}

func TestATapIsReadable(t *testing.T) {
	addr := tapped(t, "r1", nil,
		`{"timestamp":"2026-03-01T12:00:00.5Z","ringway.request.id":"i1","ringway.relay":"r1","ringway.caller":"web","http.request.method":"GET","url.path":"/a","url.query":"q=1","http.response.status_code":200,"ringway.outcome":"2xx","ringway.duration_ms":1.5,"ringway.attempts":[{"endpoint":"w1","failure":"dial"},{"endpoint":"w2"}]}`,
		`{"ringway.relay":"r1","ringway.forwarded_by":"r2","http.request.method":"GET","url.path":"/b\u001b[2J","http.response.status_code":503,"error.type":"overloaded","ringway.outcome":"failed"}`,
		`{"ringway.relay":"r1","http.request.method":"POST","url.path":"/c","ringway.outcome":"cancelled"}`,
		`{"ringway.relay":"r1","http.request.method":"POST","url.path":"/d","http.response.status_code":200,"rpc.response.status_code":"UNAVAILABLE","ringway.outcome":"2xx"}`,
		`{"ringway.relay":"r1","network.transport":"tcp","http.response.status_code":101,"ringway.outcome":"1xx","ringway.duration_ms":9}`,
		`{"ringway.tap.dropped":7}`)
	out, _, err := runTap("billing", "--admin-addr", addr, "--where", `caller="a b"`)
	if err == nil || !strings.Contains(err.Error(), "ended the stream") {
		t.Errorf("the end of the relay: %v", err)
	}
	for _, want := range []string{
		".500 r1 200 GET /a?q=1 1.500 ms by w1 (dial), w2 for web i1\n", " r1 503 overloaded GET \"/b\\x1b[2J\" ", " from r2", " r1 0 cancelled POST /c ", " r1 UNAVAILABLE POST /d ",
		" r1 101 TCP session 9.000 ms\n", "7 records were dropped", `caller="a b" of billing`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.ContainsRune(out, '\x1b') {
		t.Errorf("%q", out)
	}
	if out, _, _ := runTap("billing", "--admin-addr", addr, "-o", "json"); !strings.Contains(out, `"ringway.request.id":"i1"`) {
		t.Error(out)
	}
	if _, _, err := runTap("billing", "--admin-addr", addr, "-o", "yaml"); err == nil || !strings.Contains(err.Error(), "allowed are text or json") && !strings.Contains(err.Error(), "allowed are text, json") {
		t.Error(err)
	}
}

func TestATapOfAllRelaysReportsThoseThatCannotBeRead(t *testing.T) {
	var members api.Members
	list := func() api.Members { return members }
	first := tapped(t, "r1", list, `{"ringway.relay":"r1","url.path":"/1"}`)
	second := tapped(t, "r2", nil, `{"ringway.relay":"r2","url.path":"/2"}`)
	member := func(id string, role identity.Role, admin string) membership.Member {
		return membership.Member{ID: id, Role: role, AdminAddr: admin}
	}
	members = api.Members{Self: "r1", Members: []membership.Member{
		member("r1", identity.RoleRelay, "127.0.0.1:1"), member("g1", identity.RoleGate, second), // which r2 answers
		member("r2", identity.RoleRelay, second), member("r3", identity.RoleRelay, ""), member("r4", identity.RoleRelay, "127.0.0.1:1"),
		member("w1", identity.RoleWorker, "127.0.0.1:1"),
	}}
	out, notes, err := runTap("billing", "--all", "--admin-addr", first)
	if err == nil || !strings.Contains(err.Error(), "all 5 relays") {
		t.Error(err)
	}
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, " r1 ") || !strings.Contains(out, " r2 ") {
		t.Errorf("got\n%s", out)
	}
	for _, want := range []string{`g1: "r2" answers at`, "r3: it announces no admin address", "r4: ask the relay at 127.0.0.1:1", "r1: the relay at " + first + " ended the stream"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
}

// A member of the gossip may announce any address, also that of a process that collects
// tokens.
func TestATapOfAllRelaysSendsNoTokenToAnAddressThatOnlyGossipNames(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("correct-horse-battery-staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Bool
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	defer collector.Close()
	first := tapped(t, "r1", func() api.Members {
		return api.Members{Self: "r1", Members: []membership.Member{{ID: "r1", Role: identity.RoleRelay}, {ID: "r2", Role: identity.RoleRelay, AdminAddr: collector.Listener.Addr().String()}}}
	}, `{"ringway.relay":"r1"}`)
	out, notes, _ := runTap("billing", "--all", "--admin-addr", first, "--admin-token-file", token, "--admin-clear-text")
	if asked.Load() || !strings.Contains(notes, "r2 announces the address "+collector.Listener.Addr().String()) || !strings.Contains(notes, "it gets no token") {
		t.Errorf("the announced address was asked: %t; notes:\n%s", asked.Load(), notes)
	}
	if !strings.Contains(out, " r1 ") {
		t.Errorf("the relay of --admin-addr is not read:\n%s%s", out, notes)
	}
}

func TestATapOfAllRelaysSendsATokenOnlyToTheMemberThatItsCertificateProves(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "test", Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	claims := func(node string, role identity.Role) identity.Claims {
		return identity.Claims{Cluster: "shop", Environment: "prod", Node: node, Role: role}
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key, err := authority.Issue(claims("ops", identity.RoleClient), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"billing", "--all", "--admin-tls-cert", file("ops.crt", cert), "--admin-tls-key", file("ops.key", key), "--admin-tls-ca", file("ca.crt", authority.CertificatePEM()), "--admin-token-file", file("token", []byte("correct-horse-battery-staple\n"))}

	tokens := map[string]*atomic.Bool{}
	process := func(id string, role identity.Role, members func() api.Members) string {
		source, err := authority.Source(claims(id, role), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got := new(atomic.Bool)
		tokens[id] = got
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.Store(got.Load() || r.Header.Get("Authorization") != "")
			switch {
			case strings.HasSuffix(r.URL.Path, "/members"):
				adminapi.WriteJSON(w, http.StatusOK, members())
			case strings.HasSuffix(r.URL.Path, "/departures"):
				adminapi.WriteJSON(w, http.StatusOK, api.Departures{})
			default:
				w.Header().Set(wire.RelayHeader, id)
			}
		}))
		server.TLS = source.ServerConfig(source.Policy(identity.Hello), "http/1.1")
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	second := process("r2", identity.RoleRelay, nil)
	other := process("r9", identity.RoleRelay, nil)
	worker := process("w1", identity.RoleWorker, nil)
	member := func(id, admin string) membership.Member {
		return membership.Member{ID: id, Role: identity.RoleRelay, AdminAddr: admin}
	}
	var members api.Members
	first := process("r1", identity.RoleRelay, func() api.Members { return members })
	members = api.Members{Self: "r1", Members: []membership.Member{member("r1", first), member("r2", second), member("r3", other), member("r4", worker)}}
	_, notes, _ := runTap(append(args, "--admin-addr", first)...)
	for id, want := range map[string]bool{"r1": true, "r2": true, "r9": false, "w1": false} {
		if tokens[id].Load() != want {
			t.Errorf("%s gets a token: %t, want %t; notes:\n%s", id, !want, want, notes)
		}
	}
}
