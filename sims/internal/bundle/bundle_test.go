package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/sims/internal/bundle"
	"github.com/ringway/ringway/sims/internal/planner"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenarios/capacity"
)

// file is one file of a bundle: a text, or a value that becomes JSON.
type file struct {
	name    string
	content any
}

// pack makes a bundle as relay debug bundle does.
func pack(t testing.TB, files []file) io.Reader {
	t.Helper()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	for _, f := range files {
		text, isText := f.content.(string)
		if !isText {
			j, err := json.Marshal(f.content)
			if err != nil {
				t.Fatal(err)
			}
			text = string(j)
		}
		if err := w.WriteHeader(&tar.Header{Name: "ringway/" + f.name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func settings(pairs ...string) (c api.Config) {
	c.ID = "r1"
	for i := 0; i < len(pairs); i += 2 {
		c.Settings = append(c.Settings, api.Setting{Name: pairs[i], Value: pairs[i+1]})
	}
	return c
}

// fleet is the bundle of a relay of 2 relays and 3 workers, 100 s after its start.
func fleet() []file {
	var members api.Members
	members.Members = []membership.Member{
		{ID: "r1", Role: identity.RoleRelay, ForwardAddr: "10.0.0.1:7420"}, {ID: "r2", Role: identity.RoleRelay, ForwardAddr: "10.0.0.2:7420"}, {ID: "g1", Role: identity.RoleGate},
		{ID: "calls-1", Role: identity.RoleRelay},
		{ID: "w1", Role: identity.RoleWorker}, {ID: "w2", Role: identity.RoleWorker}, {ID: "w3", Role: identity.RoleWorker},
		{ID: "w4", Role: identity.RoleWorker, Leaving: true}, {ID: "o1", Role: identity.RoleObserver},
	}
	endpoint := func(slots int32) *advertise.Endpoint {
		return &advertise.Endpoint{Service: advertise.Service{Slots: slots}, Worker: &advertise.Worker{}}
	}
	affine := api.Service{Peers: []api.Peer{{EWMAms: 10, Requests: 300}, {EWMAms: 20, Requests: 100}, {EWMAms: 5}}, Catalogue: []*advertise.Endpoint{endpoint(8), endpoint(16), endpoint(0), endpoint(8)}}
	forwarded := api.Service{Index: -1, Peers: []api.Peer{{EWMAms: 500, Requests: 1000}}}
	return []file{
		{"MANIFEST.json", map[string]any{"process": "relay", "time": time.Unix(1_700_000_100, 0)}},
		{"config.json", settings("relays-per-service", "10", "min-peers-per-worker", "4", "min-peers-per-relay", "5", "strategy", "rendezvous", "index-source", "slot", "peer-slack", "3", "peer-drain-delay", "45s", "tls-cert", "/etc/tls.pem")},
		{"members.json", members},
		{"services.json", api.Services{Services: []api.ListedService{
			{ServiceSummary: api.ServiceSummary{Service: "a", Endpoints: 3}}, {ServiceSummary: api.ServiceSummary{Service: "b", Endpoints: 3}}, {ServiceSummary: api.ServiceSummary{Service: "gone"}},
		}}},
		{"services/a.json", affine}, {"services/a.plan.json", "not read"}, {"services/b.json", forwarded},
		{"metrics.txt", "# TYPE ringway_relay_requests_total counter\nringway_relay_requests_total{outcome=\"2xx\",service=\"a } b\"} 5000\nringway_relay_requests_total{outcome=\"5xx\",service=\"a\"} 1000\n" +
			"ringway_relay_client_connections 7\nringway_relay_client_connections_limit 900\nprocess_start_time_seconds 1.7e+09\n"},
		{"goroutines.txt", "not read"},
	}
}

func TestABundleBecomesTheFlagsOfTheFleet(t *testing.T) {
	f, err := bundle.Read(pack(t, fleet()))
	if err != nil {
		t.Fatal(err)
	}
	lines := f.Commands()
	var commands []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	// 6000 requests in 100 s at one of two relays; (300·10 + 100·20) ÷ 400 ms.
	want := []string{
		"sims capacity --workers 3 --services 2 --relays 2 --relays-per-service 10 --m 4 --p 5 --requests 120.0 --latency 12.5ms --slots 8 --clients 14 --peak 1 --strategy rendezvous --index slot --tls=true --slack 3 --drain 45s",
		"sims plan --workers 3 --services 2 --rate 120.0 --latency 12.5ms --slots 8 --clients 14 --strategy rendezvous --index slot --tls=true --relays 2 --relays-per-service 10 --m 4 --p 5",
		"sims plan --workers 3 --services 2 --rate 120.0 --latency 12.5ms --slots 8 --clients 14 --strategy rendezvous --index slot --tls=true",
	}
	if fmt.Sprint(commands) != fmt.Sprint(want) {
		t.Errorf("got\n%s", strings.Join(commands, "\n"))
	}
	if !strings.Contains(lines[0], `relay "r1" at 2023-11-14T22:15:00Z: relays 2, gates 1, workers 3, services 2.`) {
		t.Error(lines[0])
	}
	// The commands accept their flags.
	for i, s := range []scenario.Scenario{capacity.New(), planner.New(), planner.New()} {
		var set []string
		for part := range strings.SplitSeq(commands[i], " --") {
			if !strings.HasPrefix(part, "sims ") {
				set = append(set, strings.Replace(part, " ", "=", 1))
			}
		}
		if _, err := s.Values(false, set); err != nil {
			t.Errorf("%s: %v", commands[i], err)
		}
	}
}

// Text of a bundle reaches a shell only as numbers and known words.
func TestABundleCannotAddToTheCommands(t *testing.T) {
	files := fleet()
	files[1].content = settings("relays-per-service", "10; true", "strategy", "$(true)", "index-source", "rank\nrank", "peer-drain-delay", "`true`", "min-peers-per-relay", "-1")
	f, err := bundle.Read(pack(t, files))
	if err != nil {
		t.Fatal(err)
	}
	f.Relay = "r1\n$(true)"
	for _, line := range f.Commands() {
		if !strings.HasPrefix(line, "#") && strings.ContainsAny(line, ";$`\n(") || strings.Contains(line, "\n") || strings.Contains(line, "--p ") {
			t.Errorf("%q", line)
		}
	}
}

func TestWhatTheBundleLacksIsNamed(t *testing.T) {
	files := fleet()
	f, err := bundle.Read(pack(t, files[:4])) // neither metrics nor details of services
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(f.Commands(), "\n")
	if !strings.Contains(text, "Unknown, so the defaults of sims are used: --rate, --latency, --slots.") || strings.Contains(text, "--rate 0") {
		t.Error(text)
	}
}

func TestWhatIsNoBundleOfARelayIsRefused(t *testing.T) {
	worker := fleet()
	worker[0].content = map[string]any{"process": "worker"}
	alone := fleet()
	alone[2].content = api.Members{}
	broken := fleet()
	broken[1].content = "{"
	for says, in := range map[string]io.Reader{
		"it is no debug bundle, which is a .tar.gz": strings.NewReader("{}"),
		"no MANIFEST.json":                          pack(t, []file{{"x", "y"}}),
		"bundle of a \"worker\"":                    pack(t, worker),
		"0 relays and 0 workers":                    pack(t, alone),
		"config.json: unexpected end":               pack(t, broken),
		"it is no whole debug bundle":               io.LimitReader(pack(t, fleet()), 40),
		"members.json: more than 67108864 bytes":    pack(t, []file{{"members.json", strings.Repeat(" ", 64<<20+1)}}),
	} {
		if _, err := bundle.Read(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("members.json", []byte("{}"))
	f.Add("metrics.txt", []byte("ringway_relay_requests_total{ 1e99\nprocess_start_time_seconds NaN"))
	f.Add("services/a.json", []byte(`{"catalogue":[null],"peers":[{"ewma_ms":1e308,"requests":1}]}`))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if len(name) > 50 || strings.ContainsRune(name, 0) {
			return
		}
		b, err := bundle.Read(pack(t, append(fleet(), file{name, string(content)})))
		if err != nil {
			return
		}
		for _, line := range b.Commands() {
			if strings.Contains(line, "\n") {
				t.Fatalf("%q", line)
			}
		}
	})
}
