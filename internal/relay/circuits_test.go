package relay

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/circuit"
)

// failing is a relay with circuits before a worker that fails at /broken, sheds at
// /busy, finds nothing at /missing, and is well elsewhere.
func failing(t *testing.T, change func(*Settings)) *runningRelay {
	t.Helper()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.Circuit.Mode, s.Circuit.Period = circuitOn, time.Hour // no period ends by itself
		s.TrustedProxies.Set("127.0.0.0/8")                     // the test names callers
		change(s)
	})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ringway-Caller") != "" {
			t.Error("the worker learns of the caller")
		}
		if status, ok := map[string]int{"/broken": 500, "/busy": 429, "/missing": 404}[r.URL.Path]; ok {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend), service("other", backend))
	r.settled(t, "echo", 1)
	r.settled(t, "other", 1)
	return r
}

// ask sends n requests of a caller and returns the status of each, and the last
// answer.
func (r *runningRelay) ask(t *testing.T, caller, service, path string, n int) (statuses []int, last *http.Response, body string) {
	t.Helper()
	for range n {
		headers := []string{"Ringway-Service: " + service}
		if caller != "" {
			headers = append(headers, "Ringway-Caller: "+caller)
		}
		last, body = r.call(t, "GET", path, nil, headers...)
		statuses = append(statuses, last.StatusCode)
	}
	return statuses, last, body
}

func TestOnlyTheCallerWhoseRequestsFailIsRefused(t *testing.T) {
	t.Parallel()
	r := failing(t, func(*Settings) {})
	statuses, refused, body := r.ask(t, "reports-7", "echo", "/broken", 6)
	// An answer may arrive before the relay has noted how it ended.
	for n := 7; refused.StatusCode == 500 && n < 10; n++ {
		statuses, refused, body = r.ask(t, "reports-7", "echo", "/broken", 1)
	}
	if statuses[0] != refused.StatusCode || refused.StatusCode != 503 {
		t.Fatalf("%v", statuses)
	}
	a := decode(t, body)
	after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
	if a.Code != "circuit_open" || a.Service != "echo" || !strings.Contains(a.Error, `"reports-7"`) || err != nil || after < 3000 || after > 3600 {
		t.Errorf("%s, Retry-After %q", body, refused.Header.Get("Retry-After"))
	}
	for _, other := range []struct{ caller, service string }{{"web", "echo"}, {"", "echo"}, {"reports-7", "other"}} {
		if statuses, _, _ := r.ask(t, other.caller, other.service, "/", 1); statuses[0] != 200 {
			t.Errorf("%+v: %v", other, statuses)
		}
	}
	_, metrics := r.api(t, "/metrics", nil)
	for _, line := range []string{
		`ringway_relay_rejections_total{code="circuit_open",service="echo"} 1`,
		"ringway_circuit_rejected_total 1",
		`ringway_circuits{state="open"} 1`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("metrics have no %s", line)
		}
	}
	if strings.Contains(metrics, "reports-7") {
		t.Error("a metric is labelled with the caller")
	}
}

func TestAFailureThatIsNotOfTheServiceOpensNoCircuit(t *testing.T) {
	t.Parallel()
	r := failing(t, func(*Settings) {})
	for path, status := range map[string]int{"/busy": 429, "/missing": 404} {
		statuses, _, _ := r.ask(t, "web", "echo", path, 20)
		for _, got := range statuses {
			if got != status {
				t.Fatalf("%s: %v", path, statuses)
			}
		}
	}
	// Without a caller there is no circuit to open.
	if statuses, _, _ := r.ask(t, "", "echo", "/broken", 10); statuses[9] != 500 {
		t.Errorf("no caller: %v", statuses)
	}
}

func TestACircuitClosesWhenTheServiceIsWellAgain(t *testing.T) {
	t.Parallel()
	r := failing(t, func(s *Settings) {
		s.Circuit.Period, s.Circuit.MinRequests, s.Circuit.Probes = 500*time.Millisecond, 0, 2
	})
	is := func(state, path string) func() bool {
		return func() bool {
			r.ask(t, "web", "echo", path, 5) // within a period, on a busy machine, too
			_, metrics := r.api(t, "/metrics", nil)
			return strings.Contains(metrics, fmt.Sprintf("ringway_circuits{state=%q} 1\n", state))
		}
	}
	r.await(t, "an open circuit", is("open", "/broken"))
	r.await(t, "two good probes in a row", is("closed", "/"))
}

func TestCircuitsAreOffUnlessAskedForAndMayOnlyReport(t *testing.T) {
	t.Parallel()
	for _, mode := range []circuitMode{circuitOff, circuitReport} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := failing(t, func(s *Settings) { s.Circuit.Mode = mode })
			statuses, _, _ := r.ask(t, "web", "echo", "/broken", 10)
			for _, got := range statuses {
				if got != 500 {
					t.Fatalf("%v", statuses)
				}
			}
			_, metrics := r.api(t, "/metrics", nil)
			counted := strings.Contains(metrics, "\nringway_circuit_rejected_total ") && !strings.Contains(metrics, "\nringway_circuit_rejected_total 0\n")
			if counted != (mode == circuitReport) {
				t.Errorf("counted what would have been refused: %v", counted)
			}
		})
	}
}

func TestEveryCircuitSettingArrives(t *testing.T) {
	configOf := func(args ...string) *circuit.Config {
		t.Helper()
		s, err := load(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Circuit
	}
	if configOf() != nil {
		t.Error("circuits are on by themselves")
	}
	defaults := circuit.DefaultConfig()
	for args, change := range map[string]func(*circuit.Config){
		"":                            func(*circuit.Config) {},
		"--circuit-period=2s":         func(c *circuit.Config) { c.Period = 2 * time.Second },
		"--circuit-failure-share=0.1": func(c *circuit.Config) { c.FailureShare = 0.1 },
		"--circuit-min-requests=50":   func(c *circuit.Config) { c.MinRequests = 50 },
		"--circuit-probes=2":          func(c *circuit.Config) { c.Probes = 2 },
		"--circuit-max=7":             func(c *circuit.Config) { c.MaxCircuits = 7 },
		"--circuit-exempt=echo":       func(c *circuit.Config) { c.Exempt = []string{"echo"} },
		"--circuit=report":            func(c *circuit.Config) { c.ReportOnly = true },
	} {
		want := defaults
		change(&want)
		if got := configOf(append([]string{"--circuit=on"}, strings.Fields(args)...)...); got == nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, want %+v", args, got, want)
		}
	}
	for _, bad := range []string{"--circuit=yes", "--circuit-period=0s", "--circuit-failure-share=1", "--circuit-min-requests=-1", "--circuit-probes=0", "--circuit-max=0"} {
		if _, err := load(t, bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
