package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/settings"
)

func TestWhatMostWorkersAdvertiseIsThePolicyOfTheirService(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.Policies.Flags.Set("retry=connect", "strict=request-timeout=2s")
	})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or net/http does not see the client leave
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	offers := func(policy string) advertise.Service {
		s := service("slow", slow)
		s.Policy = policy
		return s
	}
	strict := service("strict", slow)
	strict.Policy = "request-timeout=9s;retry=never"
	f.worker("w1", offers("request-timeout=150ms"), strict)
	f.worker("w2", offers("request-timeout=150ms;progress-timeout=5m"))
	f.worker("w3", offers("request-timeout=9s"))
	r.settled(t, "slow", 3)
	r.settled(t, "strict", 1)

	policy := func(service string) string {
		var a api.Service
		if status, text := r.api(t, "/api/v1/services/"+service, &a); status != http.StatusOK {
			t.Fatal(status, text)
		}
		var b api.Explanation
		if status, text := r.api(t, "/api/v1/services/"+service+"/explain", &b); status != http.StatusOK || !slices.Equal(a.Policy, b.Policy) {
			t.Fatalf("%d %s: explain has another policy than %v", status, text, a.Policy)
		}
		return strings.Trim(fmt.Sprint(a.Policy), "[]")
	}
	if got, want := policy("slow"), "{request-timeout 150ms advertisement} {attempt-timeout 49.5ms default} {progress-timeout 1m0s default} {retry connect setting} {slots  default}"; got != want {
		t.Errorf("slow:\n%s, want\n%s", got, want)
	}
	if got, want := policy("strict"), "{request-timeout 2s service_setting} {attempt-timeout 660ms default} {progress-timeout 1m0s default} {retry connect setting} {slots  default}"; got != want {
		t.Errorf("strict:\n%s, want\n%s", got, want)
	}

	began := time.Now()
	resp, body := r.call(t, http.MethodPost, "/", strings.NewReader("x"), "Ringway-Service: slow")
	if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "within 150ms") || time.Since(began) > 9*time.Second {
		t.Errorf("%s after %v: %s", resp.Status, time.Since(began), body)
	}

	report, err := r.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, one := range report.Findings {
		if one.Check == "advertised-agree" {
			texts = append(texts, one.Subject+": "+one.Text)
		}
	}
	for _, want := range []string{
		"slow: the workers of slow advertise different values of request-timeout: 150ms by 2 workers, 9s by 1 worker; used is 150ms",
		"slow: the workers of slow advertise different values of progress-timeout: none by 2 workers, 5m0s by 1 worker; used is the setting --service-policy of the relays",
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("the check lacks %q:\n%s", want, strings.Join(texts, "\n"))
		}
	}
}

func TestAPolicyThatMakesNoSenseIsRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"retry=often":                   "want never, connect, idempotent or always",
		"retry=always":                  "only for a single service",
		"bad name=retry=never":          "not the name of a service",
		"request-timeout=0s":            "want a duration",
		"billing=colour=blue":           "no part of a policy",
		"":                              "no policy",
		"billing=session-cookie=sid":    "has a setting of its own",
		"retry=never;retry=connect":     "given twice",
		"billing=slots=-1":              "want a whole number",
		"slots=many":                    "want a whole number",
		"request-timeout=1s;billing=2s": "no part of a policy",
	} {
		if _, problems := parsePolicies([]string{text}); len(problems) != 1 || !strings.Contains(problems[0].Reason, reason) {
			t.Errorf("%q: %v, want %q", text, problems, reason)
		}
	}
	if _, problems := parsePolicies([]string{"a=retry=never", "a=retry=connect"}); len(problems) != 1 {
		t.Errorf("two policies of a service: %v", problems)
	}
}

// policyFileOf writes a file of policies, and returns the settings with it.
func policyFileOf(t *testing.T, content string, flags ...string) (*policySettings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--service-policy-file", path}
	for _, flag := range flags {
		args = append(args, "--service-policy", flag)
	}
	s, err := load(t, args...)
	return &s.Policies, err
}

func TestAFlagHasPrecedenceOverTheFileOfPoliciesKeyByKey(t *testing.T) {
	settings, err := policyFileOf(t, `
reports: {request-timeout: 5m, retry: never, slots: 20}
billing: {slots: 0}
"*": {retry: connect, slots: 9, attempt-timeout: 3s}
`, "reports=request-timeout=1m;slots=3", "slots=7")
	if err != nil {
		t.Fatal(err)
	}
	policies := settings.policies()
	requests := ingress.Requests{Policies: policies}
	for service, want := range map[string]string{
		"reports": "request-timeout=1m0s;attempt-timeout=3s;retry=never slots 3 service_setting",
		"billing": "attempt-timeout=3s;retry=connect slots 0 service_setting",
		"other":   "attempt-timeout=3s;retry=connect slots 7 setting",
	} {
		slots, _, origin := policies.Slots.Effective(service, nil)
		if got := fmt.Sprintf("%s slots %d %s", requests.Policy(service, advertise.Policy{}, 0), slots, origin); got != want {
			t.Errorf("%s: %s, want %s", service, got, want)
		}
	}
}

func TestEveryProblemOfTheFileOfPoliciesIsReportedWithFileAndKey(t *testing.T) {
	for content, want := range map[string][]string{
		"": {"the file is empty"},
		"a: {retry: never}\n---\nb: {retry: never}":    {"more than one YAML document"},
		"reports: [1, 2]\nbilling: fast\n":             {"line 1: ", "line 2: ", "want SERVICE: {KEY: VALUE}"},
		"reports: {retry: never}\nreports: {slots: 1}": {"already defined"},
		"a: b: c": {"not a list of policies"},
		"reports: {retry: often, colour: blue, slots: -1}\nbilling: {session-cookie: sid}\nbad name: {slots: 1}": {
			`reports: retry "often"`, `reports: "colour" is no part of a policy`, `reports: slots "-1"`, "billing: session-cookie has a setting of its own", `"bad name" is not the name of a service`,
		},
	} {
		settings, err := policyFileOf(t, content)
		if err == nil {
			t.Errorf("%q is accepted", content)
			continue
		}
		for _, want := range append(want, "--service-policy-file", "policies.yaml") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q:\n%v", content, want, err)
			}
		}
		if settings.File.path != "" {
			t.Errorf("%q: the file that was refused is in effect", content)
		}
	}
	if _, err := load(t, "--service-policy-file", filepath.Join(t.TempDir(), "absent")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestTheOperatorsSlotsReplaceThoseOfWorkers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	began, release := make(chan struct{}, 9), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	}))
	t.Cleanup(backend.Close)
	wide, narrow, free := service("echo", backend), service("echo", backend), service("free", backend)
	wide.Slots, narrow.Slots = 100, 1
	f.worker("w1", wide)
	f.worker("w2", narrow, free)
	r.settled(t, "echo", 2)
	r.settled(t, "free", 1)
	slots := func(service string) string {
		var a api.Service
		r.api(t, "/api/v1/services/"+service, &a)
		return strings.Trim(fmt.Sprint(a.Policy[len(a.Policy)-1]), "{}")
	}
	limits := func(want ...int) {
		t.Helper()
		r.await(t, fmt.Sprint("the limits ", want), func() bool {
			s, _ := r.Routes.Service("echo")
			var got []int
			for _, target := range s.Route().Range {
				got = append(got, target.Limit)
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
	tune := func(policies ...string) {
		t.Helper()
		requests := *r.tuned.Load()
		var problems []settings.Problem
		if requests.Policies, problems = parsePolicies(policies); problems != nil {
			t.Fatal(problems)
		}
		r.tune(requests) // as a reload does
	}
	limits(1, 100)
	if got := slots("echo") + ", " + slots("free"); got != "slots 1 to 100 advertisement, slots  default" {
		t.Error(got)
	}
	tune("echo=slots=1", "slots=5")
	limits(1, 1)
	if got := slots("echo") + ", " + slots("free"); got != "slots 1 service_setting, slots 5 setting" {
		t.Error(got)
	}
	answered := make(chan int, 2)
	for range 2 {
		go func() {
			resp, _ := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
			answered <- resp.StatusCode
		}()
		<-began
	}
	if resp, body := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "overloaded") {
		t.Errorf("a third request for two workers with one slot each: %s %s", resp.Status, body)
	}
	tune("echo=slots=0")
	limits(0, 0)
	close(release)
	for range 3 {
		if resp, body := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo"); resp.StatusCode != http.StatusOK {
			t.Errorf("without a limit: %s %s", resp.Status, body)
		}
	}
	for range 2 {
		if status := <-answered; status != http.StatusOK {
			t.Errorf("a request from before: %d", status)
		}
	}
	tune()
	limits(1, 100)
}

func TestWhatMostWorkersAdvertiseIsTheSessionCookieOfTheirService(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.SessionCookies.Set("own=cart", "off=")
		s.Policies.Flags.Set("cookie-domain=example.com")
	})
	names := map[string]string{"echo": "__Host-sid", "few": "", "own": "cart", "off": "", "thief": ""}
	for i, advertised := range []map[string]string{
		{"echo": "__Host-sid", "few": "mine", "own": "x", "off": "x", "thief": "cart"}, {"echo": "__Host-sid", "few": "", "own": "x", "off": "x", "thief": "cart"}, {"echo": "other", "few": "", "own": "", "off": "", "thief": ""},
	} {
		id := fmt.Sprint("w", i+1)
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, id) }))
		t.Cleanup(backend.Close)
		var services []advertise.Service
		for name, cookie := range advertised {
			s := service(name, backend)
			if cookie != "" {
				s.Policy = "session-cookie=" + cookie
			}
			services = append(services, s)
		}
		f.worker(id, services...)
	}
	for name, cookie := range names {
		r.settled(t, name, 3)
		resp, first := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: "+name)
		set := resp.Header.Get("Set-Cookie")
		if got, _, _ := strings.Cut(set, "="); got != cookie {
			t.Errorf("%s sets the cookie %q, want %q", name, set, cookie)
		}
		var a api.Service
		var x api.Explanation
		r.api(t, "/api/v1/services/"+name, &a)
		r.api(t, "/api/v1/services/"+name+"/explain", &x)
		want := map[string]string{"echo": "{session-cookie __Host-sid advertisement}", "own": "{session-cookie cart service_setting}", "off": "{session-cookie  service_setting}"}[name]
		if shown := fmt.Sprint(a.Policy); want != "" && !strings.Contains(shown, want) || want == "" && strings.Contains(shown, "session-cookie") || x.SessionCookie != cookie || fmt.Sprint(x.Policy) != shown {
			t.Errorf("%s shows %s, explained %q, want %s", name, shown, x.SessionCookie, want)
		}
		if cookie == "" {
			continue
		}
		// Browsers discard a cookie of this name with a domain.
		const domain, without = "example.com", "example.com, without effect: the cookie's name begins with __Host-"
		if host := name == "echo"; strings.Contains(set, "Domain="+domain) == host || strings.Contains(fmt.Sprint(a.Policy), "{cookie-domain "+without+" setting}") != host {
			t.Errorf("%s sets %q, and shows %v", name, set, a.Policy)
		}
		value, _, _ := strings.Cut(set, ";")
		for range 10 {
			if _, again := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: "+name, "Cookie: "+value); again != first {
				t.Errorf("%s: the session of %s is at %s", name, first, again)
			}
		}
	}
	if log := r.log.String(); !strings.Contains(log, "--session-cookie gives the name to own") {
		t.Errorf("the name that another service has is refused in silence:\n%s", log)
	}
	if got := r.metric(t, `ringway_relay_session_cookies_total{event="accepted",service="echo"}`); !strings.HasSuffix(got, "10") {
		t.Errorf("counted: %q", got)
	}
}
