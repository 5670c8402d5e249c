package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/settings"
)

// reloadable is a relay that is not run, with the file that it was made from.
type reloadable struct {
	*Relay
	t     *testing.T
	file  string
	log   *logtest.Log
	level *slog.LevelVar
}

const leastSettings = "cluster: test\nenvironment: ci\nid: r1\ngossip-addr: 127.0.0.1:0\ningress-addr: 127.0.0.1:0\npeer-addr: 127.0.0.1:0\nadmin-addr: 127.0.0.1:0\n"

// newReloadable adds text to the least settings.
func newReloadable(t *testing.T, text ...string) *reloadable {
	t.Helper()
	r := &reloadable{t: t, file: filepath.Join(t.TempDir(), "relay.yaml"), log: &logtest.Log{}, level: new(slog.LevelVar)}
	r.write(strings.Join(text, ""))
	s := DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	load := func() error { return set.Load(settings.Sources{File: r.file}) }
	if err := load(); err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.NewTextHandler(r.log, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Running = process.NewRunning(process.RunningConfig{Set: set, Load: load, Level: r.level})
	if r.Relay, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // which Run has done
			t.Error(err)
		}
	})
	return r
}

// write adds text to the least settings.
func (r *reloadable) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(leastSettings+text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// post asks for a reload as an operator does.
func (r *reloadable) post() (int, string) {
	w := httptest.NewRecorder()
	r.admin.server.(*http.Server).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/api/v1/reload", nil))
	return w.Code, w.Body.String()
}

// Each of them is what another handler is made with, and nothing else changes.
func TestEveryTunableSettingIsServedByAfterAReload(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte("billing: {request-timeout: 9s, slots: 3}"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := map[string]struct {
		text  string
		field func(Requests) any
		want  string // as JSON
	}{
		"domain":          {"domain: example.org", func(c Requests) any { return c.Domain }, `"example.org"`},
		"routes":          {"routes: [{host: a, service: b}]", func(c Requests) any { return c.Routes }, `[{"Host":"a","PathPrefix":"","Headers":null,"Service":"b","Rate":"","Burst":0}]`},
		"blocks":          {"blocks: [{caller: alice, service: b}]", func(c Requests) any { return c.Blocks }, `[{"Caller":"alice","Service":"b","Until":"0001-01-01T00:00:00Z","Reason":""}]`},
		"rate-limits":     {"rate-limits: [{service: b, caller: alice, rate: 5/s, burst: 9}]", func(c Requests) any { return c.RateLimits }, `[{"Service":"b","Caller":"alice","Rate":"5/s","Burst":9}]`},
		"key-source":      {"key-source: [\"billing=cookie:sid;caller\"]", func(c Requests) any { return c.Keys.Of("billing").String() }, `"cookie:sid;caller"`},
		"request-timeout": {"request-timeout: 7s", func(c Requests) any { return c.Timeout.String() }, `"7s"`},
		"attempt-timeout": {"attempt-timeout: 2s", func(c Requests) any { return c.AttemptTimeout.String() }, `"2s"`},
		"service-policy": {"service-policy: [billing=request-timeout=9s;retry=connect, retry=never]", func(c Requests) any {
			return c.Policy("billing", advertise.Policy{}, 0).String() + " " + string(c.Policy("other", advertise.Policy{}, 0).Retry)
		}, `"request-timeout=9s;attempt-timeout=2.97s;retry=connect never"`},
		"service-policy-file": {"service-policy-file: " + policies, func(c Requests) any {
			return []any{c.Policy("billing", advertise.Policy{}, 0).RequestTimeout.String(), c.Policies.Slots["billing"]}
		}, `["9s",3]`},
		"max-attempts":             {"max-attempts: 2", func(c Requests) any { return c.MaxAttempts }, `2`},
		"retry-budget":             {"retry-budget: 0.5", func(c Requests) any { return c.RetryBudget }, `0.5`},
		"max-in-flight":            {"max-in-flight: 3", func(c Requests) any { return c.MaxInFlight }, `3`},
		"adaptive-in-flight":       {"adaptive-in-flight: false", func(c Requests) any { return c.AdaptiveInFlight }, `false`},
		"max-in-flight-per-client": {"max-in-flight-per-client: 5%", func(c Requests) any { return c.MaxInFlightPerClient }, `500`},
		"max-client-connections":   {"max-client-connections: 9", func(c Requests) any { return c.MaxClientConnections }, `9`},
		"ingress-service":          {"ingress-service: [a, b]", func(c Requests) any { return c.OnlyServices }, `["a","b"]`},
		"trusted-proxy":            {"trusted-proxy: [10.1.2.3/8]", func(c Requests) any { return c.TrustedProxies }, `["10.0.0.0/8"]`},
		"proxy-protocol-from":      {"proxy-protocol-from: [10.1.2.3/8]", func(c Requests) any { return c.ProxyProtocolFrom }, `["10.0.0.0/8"]`},
		"expose-route-headers":     {"expose-route-headers: true", func(c Requests) any { return c.ExposeRouteHeaders }, `true`},
		"via":                      {"via: true", func(c Requests) any { return c.Via }, `true`},
		"request-log-sample":       {"request-log-sample: 0.25", func(c Requests) any { return c.Record.Sample }, `0.25`},
		"request-log-slow":         {"request-log-slow: 2s", func(c Requests) any { return c.Record.Slow.String() }, `"2s"`},
		"request-log-slowest":      {"request-log-slowest: 3", func(c Requests) any { return c.Record.Slowest }, `3`},
		"request-log-path":         {"request-log-path: full", func(c Requests) any { return c.Record.Path }, `"full"`},
		"drain-timeout":            {"drain-timeout: 4s", func(c Requests) any { return c.DrainTimeout.String() }, `"4s"`},
		"session-drain-timeout":    {"session-drain-timeout: 9m", func(c Requests) any { return c.SessionDrainTimeout.String() }, `"9m0s"`},
	}
	for name, c := range shown {
		t.Run(name, func(t *testing.T) {
			r := newReloadable(t)
			before := r.tuned.Load()
			made := map[bool]Requests{} // by whether they serve relays
			r.newHandler = func(requests Requests, fromRelay bool) http.Handler {
				made[fromRelay] = requests
				return http.NotFoundHandler()
			}
			r.write(c.text)
			answer, err := r.reload()
			if err != nil || len(answer.Applied) != 1 || answer.Applied[0].Name != name || len(answer.NeedsRestart) != 0 {
				t.Fatalf("%+v, %v", answer, err)
			}
			for _, requests := range []Requests{made[false], made[true], *r.tuned.Load()} {
				if got, _ := json.Marshal(c.field(requests)); string(got) != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
			if reflect.DeepEqual(c.field(*before), c.field(*r.tuned.Load())) {
				t.Error("the test changes nothing")
			}
		})
	}
	var s Settings
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	names := slices.DeleteFunc(set.Reloadable(), func(name string) bool { return ofPlan(settings.Change{Name: name}) })
	if len(names) != len(shown) {
		t.Errorf("%v are reloadable; show the others here, too", names)
	}
}

// The retry budget of the handlers would begin anew.
func TestAReloadOfTheSettingsOfThePlanChangesNoHandler(t *testing.T) {
	r := newReloadable(t)
	handler := r.ingressFront.handler.Load()
	r.write("plan-version: 8\nstrategy: rendezvous\nmin-peers-per-worker: 5\nskip-relay: [echo=r9]\nplan-from-fleet: false\n")
	answer, err := r.reload()
	if err != nil || len(answer.Applied) != 5 || len(answer.NeedsRestart) != 0 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if r.ingressFront.handler.Load() != handler {
		t.Error("the handler was replaced")
	}
	var many []string
	for i := range 400 {
		many = append(many, fmt.Sprintf("echo=r%09d", i))
	}
	var cookies []string
	for i := range 400 {
		cookies = append(cookies, fmt.Sprintf("service-%d=sid", i))
	}
	for _, text := range []string{"skip-relay: [" + strings.Join(many, ",") + "]", "session-cookie: [" + strings.Join(cookies, ",") + "]"} {
		r.write("plan-version: 9\n" + text + "\n")
		if _, err := r.reload(); err == nil || !strings.Contains(err.Error(), "--plan-version") {
			t.Errorf("settings that the other relays would refuse, %.20s: %v", text, err)
		}
	}
}

func TestAReloadReportsWhichSettingsOfThePlanTheFleetReplaces(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	other := f.relay(func(s *Settings) { s.ID, s.Plans.Version = "r2", 8 })
	join := "join: [" + other.GossipAddr() + "]\n"
	r := newReloadable(t, join)
	f.run(r.Relay)
	procs.Await(t, "r1 plans with the version of r2", func() bool { return r.Routes.Agreed().Version == 8 })
	const m = "min-peers-per-worker"
	for _, step := range []struct {
		text              string
		applied, notInUse []string
		reason            string
		inEffect          string // of m
	}{
		{m + ": 5\n", nil, []string{m}, "version 8 by r2 is in use", "3"},
		{m + ": 5\nmax-attempts: 2\n", []string{"max-attempts"}, []string{m}, "give these settings a --plan-version above 8", "3"},
		{m + ": 5\nplan-version: 8\n", []string{"max-attempts"}, []string{"plan-version", m}, "version 8 by r2 is in use", "3"},
		{m + ": 5\nplan-from-fleet: false\n", []string{m, "plan-from-fleet"}, nil, "", "5"},
		{m + ": 6\n", []string{"plan-from-fleet"}, []string{m}, "version 8 by r2 is in use", "5"},
		{m + ": 6\nplan-version: 9\n", []string{"plan-version", m}, nil, "", "6"},
		{m + ": 6\nplan-version: 7\n", nil, []string{"plan-version"}, "version 9 by r1 is in use", "6"},
	} {
		r.write(join + step.text)
		answer, err := r.reload()
		if err != nil || !slices.Equal(process.Names(answer.Applied), step.applied) || !slices.Equal(process.Names(answer.NotInUse), step.notInUse) {
			t.Errorf("%q: %+v, %v", step.text, answer, err)
		}
		if (step.reason == "") != (answer.Reason == "") || !strings.Contains(answer.Reason, step.reason) || !strings.Contains(r.log.String(), step.reason) {
			t.Errorf("%q: the reason is %q, logged is\n%s", step.text, answer.Reason, r.log)
		}
		for _, v := range r.cfg.Running.Values() {
			if v.Name == m && v.Value != step.inEffect {
				t.Errorf("%q: shown as in effect is %s", step.text, v.Value)
			}
		}
		procs.Await(t, "r1 plans as the answer reports", func() bool {
			agreed := r.Routes.Agreed()
			return agreed.FromFleet != strings.Contains(step.text, "plan-from-fleet") && agreed.Lags() == (step.notInUse != nil)
		})
	}
}

func TestSettingsOfTheFleetAreUsedOnlyWhereTheyAreProvenOrLocal(t *testing.T) {
	for _, test := range []struct {
		addr, cert string
		setting    following
		want       bool
	}{
		{"127.0.0.1:7400", "", followAuto, true},
		{"[::1]:7400", "", followAuto, true},
		{"10.0.0.1:7400", "", followAuto, false},
		{"0.0.0.0:7400", "", followAuto, false},
		{"host.example:7400", "", followAuto, false},
		{"10.0.0.1:7400", "relay.pem", followAuto, true},
		{"10.0.0.1:7400", "", followYes, true},
		{"127.0.0.1:7400", "relay.pem", followNo, false},
	} {
		s := DefaultSettings()
		s.GossipAddr, s.TLSCert, s.PlanFromFleet = test.addr, test.cert, test.setting
		if got := s.plansFromFleet(); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestAReloadChangesTheSettingsOfRequestsAndKeepsTheRest(t *testing.T) {
	r := newReloadable(t)
	ask := func() string {
		w := httptest.NewRecorder()
		r.ingressFront.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://shop.example/", nil))
		return w.Body.String()
	}
	if text := ask(); !strings.Contains(text, "bad_request") {
		t.Fatal(text)
	}
	r.write("routes: [{host: shop.example, service: billing}]\npeer-slack: 9\nlog-level: warn\n")
	status, text := r.post()
	if status != http.StatusOK || !strings.Contains(text, `"name": "peer-slack"`) {
		t.Fatalf("%d %s", status, text)
	}
	if text := ask(); !strings.Contains(text, `"billing"`) || !strings.Contains(text, "not_ready") {
		t.Error(text)
	}
	if r.level.Level() != slog.LevelWarn {
		t.Errorf("log level %s", r.level.Level())
	}
	for _, want := range []string{`applied="[log-level: \"info\" is now \"warn\"`, `needs_restart="[peer-slack: \"2\" is now \"9\"]"`} {
		if strings.Count(r.log.String(), want) != 1 {
			t.Errorf("the log does not say once %s:\n%s", want, r.log)
		}
	}
}

func TestABadFileChangesNothing(t *testing.T) {
	r := newReloadable(t)
	before, handler := r.tuned.Load(), r.ingressFront.handler.Load()
	r.write("request-timeout: 1s\nmax-attempts: 99\nlog-level: debug\nlog-levle: debug\n")
	status, text := r.post()
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "2 settings are invalid") || !strings.Contains(text, "did you mean --log-level?") {
		t.Errorf("%d %s", status, text)
	}
	if r.tuned.Load() != before || r.ingressFront.handler.Load() != handler || r.level.Level() != slog.LevelInfo {
		t.Error("something has changed")
	}
	for _, v := range r.cfg.Running.Values() {
		if v.Name == "request-timeout" && v.Value != "30s" {
			t.Errorf("the settings in effect have changed: %+v", v)
		}
	}
	if strings.Count(r.log.String(), "reload refused, nothing has changed") != 1 {
		t.Errorf("logged\n%s", r.log)
	}
}

// Each of the files is valid, but what would be in effect is a half of it.
func TestAReloadIsRefusedIfItsSettingsDoNotFitThoseThatNeedARestart(t *testing.T) {
	for name, c := range map[string]struct{ before, after, refused string }{
		"tcp-ingress": {
			"tcp-ingress: [127.0.0.1:0=cache]\ningress-service: [cache, web]\n", "tcp-ingress: [127.0.0.1:0=redis]\ningress-service: [redis, web]\n",
			`--tcp-ingress "cache" of the running process: clients of this relay may not reach this service; restart to change it together with ingress-service`,
		},
		"tls-passthrough": {
			"tls-passthrough: [127.0.0.1:0]\ndomain: shop.test\n", "",
			`--tls-passthrough "127.0.0.1:0" of the running process: no server name names a service; restart to change it together with domain, routes`,
		},
		"session-cookie": {
			"session-cookie: [shop=__Host-sid]\n", "session-cookie: [shop=sid]\nservice-policy: [shop=cookie-path=/pay]\n",
			`--session-cookie "shop=__Host-sid" of the running process: browsers discard`,
		},
		"what fits": {"tcp-ingress: [127.0.0.1:0=cache]\ningress-service: [cache, web]\n", "tcp-ingress: [127.0.0.1:0=redis]\ningress-service: [cache, redis]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReloadable(t, c.before)
			tuned, values := r.tuned.Load(), r.cfg.Running.Values()
			r.write(c.after + "log-level: warn\nmin-peers-per-worker: 5\n")
			if status, text := r.post(); c.refused == "" {
				if status != http.StatusOK || r.level.Level() != slog.LevelWarn {
					t.Errorf("%d %s", status, text)
				}
				return
			} else if status != http.StatusUnprocessableEntity {
				t.Errorf("%d %s", status, text)
			}
			if log := strings.ReplaceAll(r.log.String(), `\"`, `"`); !strings.Contains(log, "reload refused, nothing has changed") || !strings.Contains(log, c.refused) {
				t.Errorf("logged\n%s", log)
			}
			if r.tuned.Load() != tuned || !reflect.DeepEqual(r.cfg.Running.Values(), values) || r.level.Level() != slog.LevelInfo {
				t.Error("something has changed")
			}
		})
	}
}

func TestAReloadReadsTheFileOfPoliciesAgain(t *testing.T) {
	r := newReloadable(t)
	path := filepath.Join(t.TempDir(), "policies.yaml")
	timeout := func() string { return r.tuned.Load().Policy("billing", advertise.Policy{}, 0).RequestTimeout.String() }
	for _, step := range []struct{ content, want, applied string }{
		{"billing: {request-timeout: 9s}", "9s", `service-policy-file: "" is now`},
		{"billing: {request-timeout: 8s}", "8s", `service-policy-file: the content of "` + path + `" has changed`},
		{"billing: {request-timeout: 8s}", "8s", ""},
		{"billing: {request-timeout: soon}", "8s", "refused"},
		{"billing: {request-timeout: 7s}", "7s", "has changed"},
	} {
		if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		r.write("service-policy-file: " + path + "\n")
		answer, err := r.reload()
		if step.applied == "refused" {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `billing: request-timeout "soon"`) {
				t.Errorf("%s: %v", step.content, err)
			}
		} else if err != nil || !strings.Contains(strings.Join(texts(answer.Applied), " "), step.applied) || (step.applied == "") != (len(answer.Applied) == 0) {
			t.Errorf("%s: %v, %v", step.content, answer.Applied, err)
		}
		if got := timeout(); got != step.want {
			t.Errorf("%s: in effect is %s", step.content, got)
		}
	}
}

func TestASecretThatChangesIsNamedAndNeverShown(t *testing.T) {
	r := newReloadable(t)
	for _, secret := range []string{"correct-horse-battery-staple-0123", "correct-horse-battery-staple-4567"} {
		r.write("shared-key: " + secret + "\n")
		status, text := r.post()
		if status != http.StatusOK || !strings.Contains(text, `"name": "shared-key"`) || strings.Contains(text, "correct-horse") {
			t.Errorf("%d %s", status, text)
		}
	}
	w := httptest.NewRecorder()
	r.admin.server.(*http.Server).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/config", nil))
	if strings.Contains(w.Body.String()+r.log.String(), "correct-horse") || !strings.Contains(w.Body.String(), `"name": "shared-key"`) {
		t.Errorf("%s\n%s", w.Body, r.log)
	}
}

func TestReloadsAreCountedByWhatCameOfThem(t *testing.T) {
	r := newReloadable(t)
	r.Reload()
	r.write("max-attempts: 2\n")
	r.Reload()
	r.Reload()
	r.write("max-attempts: none\n")
	r.Reload()
	want := bytes.NewBufferString(`
		# HELP ringway_relay_reloads_total Reloads of the settings, by a signal or the admin API: applied, unchanged, refused (nothing changed).
		# TYPE ringway_relay_reloads_total counter
		ringway_relay_reloads_total{result="applied"} 1
		ringway_relay_reloads_total{result="refused"} 1
		ringway_relay_reloads_total{result="unchanged"} 2
	`)
	if err := testutil.GatherAndCompare(r.cfg.Registry, want, "ringway_relay_reloads_total"); err != nil {
		t.Error(err)
	}
	if refused := testutil.ToFloat64(r.reloadRefused); refused != 1 {
		t.Errorf("the last reload was refused, and the gauge is %v", refused)
	}
	r.write("max-attempts: 2\n") // as it is in effect
	if r.Reload(); testutil.ToFloat64(r.reloadRefused) != 0 {
		t.Error("the file of before is back, and the gauge is not 0")
	}
}

// Neither setting from which auto follows is applied by a reload.
func TestAReloadDoesNotChangeWhatAutoFollowsFrom(t *testing.T) {
	r := newReloadable(t)
	before := r.cfg.PlansFromFleet
	least := regexp.MustCompile("gossip-addr: .*").ReplaceAllString(leastSettings, "gossip-addr: 10.0.0.1:7400")
	if err := os.WriteFile(r.file, []byte(least+"insecure: true\nplan-from-fleet: auto\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text := r.post(); status != http.StatusOK {
		t.Fatal(status, text)
	}
	if read := r.cfg.Reloaded(); !before || read.PlansFromFleet != before {
		t.Errorf("it was %v, and is %v", before, read.PlansFromFleet)
	}
	r.write("plan-from-fleet: false\n")
	if status, text := r.post(); status != http.StatusOK || r.cfg.Reloaded().PlansFromFleet {
		t.Error(status, text)
	}

	s := DefaultSettings() // of a relay that starts without auto
	s.GossipAddr, s.PlanFromFleet = "10.0.0.1:7400", followNo
	if s.plansFromFleet() {
		t.Error("false is true")
	}
	if s.TLSCert, s.PlanFromFleet = "relay.pem", followAuto; s.plansFromFleet() {
		t.Error("auto follows from a certificate that is not in use")
	}
}

func TestARelayThatWasNotMadeFromSettingsReportsIt(t *testing.T) {
	t.Parallel()
	r := newFleet(t).relay(func(*Settings) {})
	if status, text := r.post(t, "/api/v1/reload"); status != http.StatusConflict || !strings.Contains(text, "not started from settings") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.api(t, "/api/v1/config", nil); status != http.StatusConflict || !strings.Contains(text, "not started from settings") {
		t.Errorf("%d %s", status, text)
	}
}

func TestTheListOfServicesCountsWhatTheMetricsCount(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	f.echo("w2")
	r.settled(t, "echo", 2)
	for range 3 {
		r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
	}
	var answer api.Services
	r.api(t, "/api/v1/services", &answer)
	i := slices.IndexFunc(answer.Services, func(s api.ListedService) bool { return s.Service == "echo" })
	if s := answer.Services[i]; answer.Relay != r.id || s.Ready != 2 || s.Endpoints != 2 || s.Relays != 1 || s.Range != 2 || s.Requests != 3 || s.Role != "affine" {
		t.Errorf("%+v", answer)
	}
}
