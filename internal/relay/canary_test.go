package relay

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// policies applies these policies of services, as a reload does.
func (r *runningRelay) policies(t *testing.T, texts ...string) {
	t.Helper()
	requests := *r.tuned.Load()
	policies, problems := parsePolicies(texts)
	if problems != nil {
		t.Fatal(problems)
	}
	requests.Policies = policies
	r.tune(requests)
}

// canary awaits that the relay reaches this many workers of the version; 0 for no canary.
func (r *runningRelay) canary(t *testing.T, version string, share float64, workers int) {
	t.Helper()
	r.await(t, fmt.Sprintf("the canary %s with %v for %d workers", version, share, workers), func() bool {
		s, _ := r.Routes.Service("echo")
		of, n := s.Route().Canary()
		return of.Version == version && of.Share == share && n == workers
	})
}

// visits sends n requests to the relays in turn over kept connections, each with the key of its
// number if keyed. It returns the worker that answered each, empty for a failure.
func visits(t *testing.T, relays []*runningRelay, n int, keyed bool) []string {
	t.Helper()
	out := make([]string, n)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+relays[i%len(relays)].IngressAddr()+"/", nil)
				req.Header.Set("Ringway-Service", "echo")
				if keyed {
					req.Header.Set("Ringway-Key", fmt.Sprint("key", i/len(relays)))
				}
				resp, err := client.Do(req)
				if err != nil {
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					out[i] = string(body)
				}
			}
		})
	}
	all.Wait()
	return out
}

// versions starts workers of version 1.0, w1 and on, and one, c1, of version 2.0, whose service it
// returns. Each answers with its id.
func (f *fleet) versions(old int, selection string) (canary *httptest.Server) {
	f.t.Helper()
	start := func(id, version string) *httptest.Server {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, id) }))
		f.t.Cleanup(backend.Close)
		s := service("echo", backend)
		s.Version, s.Selection = version, selection
		f.worker(id, s)
		return backend
	}
	for i := range old {
		start(fmt.Sprintf("w%d", i+1), "1.0")
	}
	return start("c1", "2.0")
}

func TestACanaryGetsItsShareOfTheRequestsOfAllRelays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for range 3 {
		f.relay(func(s *Settings) {
			s.Policies.Flags.Set("echo=canary=v2.0:5%")
			s.Upstream.DialTimeout, s.AttemptTimeout = patience, attemptTime{} // a busy machine fails no attempt
		})
	}
	f.versions(5, "")
	for _, r := range f.relays {
		r.settled(t, "echo", 6)
		r.canary(t, "v2.0", 0.05, 1)
	}
	n, most := 6000, 1.4
	if os.Getenv("LONG_TESTS") != "" {
		n, most = 100_000, 0.3
	}
	got := visits(t, f.relays, n, false)
	count := map[string]int{}
	for _, id := range got {
		count[id]++
	}
	share := 100 * float64(count["c1"]) / float64(n)
	t.Logf("%d requests: %.3f %% to the canary; %v", n, share, count)
	if math.Abs(share-5) > most || count[""] > 0 {
		t.Errorf("%.3f %% of %d requests went to the canary, %d failed: want 5 %% and no failure", share, n, count[""])
	}
	service, _ := f.relays[0].Routes.Service("echo")
	picks := 0
	for range 100_000 {
		var tried routing.Tried
		p, err := service.Pick("", 1, &tried)
		if err != nil {
			t.Fatal(err)
		}
		if p.Value().Canary {
			picks++
		}
		service.Endpoints.Done(p, 1, selection.Result{Outcome: selection.Cancelled})
	}
	if share := float64(picks) / 1000; math.Abs(share-5) > 0.3 {
		t.Errorf("%.3f %% of 100,000 picks were for the canary, want 5 ± 0.3 %%", share)
	}
	if metric := logtest.Series(t, f.relays[0].cfg.Registry, "ringway_relay_canary_requests_total"); metric["canary,echo"] == 0 || metric["rest,echo"] < 10*metric["canary,echo"] || metric["failed_over,echo"] > 0 {
		t.Errorf("%v", metric)
	}
}

func TestAKeyIsOnOneSideOfACanaryAtAllRelaysAndStaysWhenTheShareGrows(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"", "stable"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for range 3 {
				// A busy machine fails no attempt: a retry may leave the canary.
				f.relay(func(s *Settings) { s.Upstream.DialTimeout, s.AttemptTimeout = patience, attemptTime{} })
			}
			f.versions(5, strategy)
			for _, r := range f.relays {
				r.settled(t, "echo", 6)
			}
			const keys = 600
			sides := func() (canary []bool) {
				got := visits(t, f.relays, keys*len(f.relays), true)
				for key := range keys {
					of := got[key*3 : key*3+3]
					c := 0
					for _, id := range of {
						if id == "c1" {
							c++
						}
					}
					if slices.Contains(of, "") || c != 0 && c != 3 {
						for _, r := range f.relays {
							retries := logtest.Series(t, r.cfg.Registry, "ringway_relay_retries_total")
							maps.DeleteFunc(retries, func(_ string, n float64) bool { return n == 0 })
							t.Logf("%s tried again %v; its log:\n%s", r.id, retries, r.log)
						}
						t.Fatalf("key %d was answered by %q", key, of)
					}
					canary = append(canary, c == 3)
				}
				return canary
			}
			var before []bool
			for _, percent := range []float64{5, 20, 100, 0} {
				for _, r := range f.relays {
					r.policies(t, fmt.Sprintf("echo=canary=2.0:%v%%", percent))
					r.canary(t, "2.0", percent/100, 1)
				}
				now := sides()
				n := 0
				for key, in := range now {
					if in {
						n++
					}
					if percent > 0 && before != nil && before[key] && !in {
						t.Errorf("key %d left the canary at %v %%", key, percent)
					}
				}
				if got := 100 * float64(n) / keys; math.Abs(got-percent) > 4 {
					t.Errorf("%.2f %% of the keys are in the canary, want %v", got, percent)
				}
				before = now
			}
			for _, r := range f.relays { // and it ends by a reload
				r.policies(t)
				r.canary(t, "", 0, 0)
			}
			for _, line := range []string{`msg=canary service=echo version=2.0 share=0.2 workers=1 others=5`, `msg="canary ended" service=echo version=2.0`} {
				f.relays[0].await(t, "the line "+line, func() bool { return f.relays[0].log.Lines(line) > 0 }) // written after the route is published
			}
			f.relays[0].await(t, "no counter of the canary", func() bool {
				return len(logtest.Series(t, f.relays[0].cfg.Registry, "ringway_relay_canary_requests_total")) == 0
			})
		})
	}
}

func TestNoRequestIsLostWhenACanaryDies(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"", "stable", "random"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for range 2 {
				f.relay(func(s *Settings) { s.Policies.Flags.Set("echo=canary=2.0:50%") })
			}
			canary := f.versions(2, strategy)
			for _, r := range f.relays {
				r.settled(t, "echo", 3)
				r.canary(t, "2.0", 0.5, 1)
			}
			if got := visits(t, f.relays, 200, false); !slices.Contains(got, "c1") || slices.Contains(got, "") {
				t.Fatalf("%q", got)
			}
			canary.CloseClientConnections()
			canary.Close()
			if got := visits(t, f.relays, 2000, true); slices.Contains(got, "") || slices.Contains(got, "c1") {
				t.Errorf("with a dead canary: %q", got)
			}
		})
	}
}

func TestAWorkerOfACanaryThatFailsIsEvicted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Policies.Flags.Set("echo=canary=2.0:50%") })
	f.versions(3, "")
	for id, status := range map[string]int{"c2": http.StatusOK, "c3": http.StatusInternalServerError} {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, id)
		}))
		t.Cleanup(backend.Close)
		s := service("echo", backend)
		s.Version = "2.0"
		f.worker(id, s)
	}
	r.settled(t, "echo", 6)
	r.canary(t, "2.0", 0.5, 3)
	visits(t, f.relays, 200, false)
	answered := visits(t, f.relays, 400, false)
	if failed := len(answered) - count(answered, "c1") - count(answered, "c2") - count(answered, "w1") - count(answered, "w2") - count(answered, "w3"); failed > 2 {
		t.Errorf("%d of %d requests failed at a worker that has failed before", failed, len(answered))
	}
	if c1, c2 := count(answered, "c1"), count(answered, "c2"); c1 < 50 || c2 < 50 {
		t.Errorf("the other workers of the canary got %d and %d of 200", c1, c2)
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

func TestARelayExplainsTheCanaryOfARequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.LogLevel = "debug"; s.Policies.Flags.Set("echo=canary=2.0:30%;retry=never") })
	f.versions(2, "")
	r.settled(t, "echo", 3)
	r.canary(t, "2.0", 0.3, 1)
	sides := map[bool]int{}
	for i := range 60 {
		var a api.Route
		if status, text := r.api(t, fmt.Sprintf("/api/v1/services/echo/route?key=k%d", i), &a); status != 200 {
			t.Fatal(text)
		}
		d := a.Decision
		if d.Canary == nil || d.Canary.Version != "2.0" || d.Canary.Workers != 1 || d.Canary.Chosen != (d.Canary.Place < 0.3) || d.Canary.Chosen != (d.Winner == "c1") || !strings.Contains(d.Reason, "the 30 % of the canary 2.0 (the key's place is 0.") {
			t.Fatalf("%+v %+v", d, d.Canary)
		}
		sides[d.Canary.Chosen]++
		if _, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo", fmt.Sprintf("Ringway-Key: k%d", i)); body != d.Winner && (body == "c1" || d.Winner == "c1") {
			t.Errorf("key k%d: %s, but the answer about it was %s", i, body, d.Winner)
		}
	}
	if sides[true] < 5 || sides[false] < 20 {
		t.Errorf("%v", sides)
	}
	var x api.Explanation
	r.api(t, "/api/v1/services/echo/explain", &x)
	if !slices.Contains(x.Policy, api.PolicyField{Key: "canary", Value: "2.0:30%", Origin: "service_setting"}) {
		t.Errorf("%v", x.Policy)
	}
	r.policies(t, "echo=canary=3.0:30%")
	r.canary(t, "", 0, 0)
	r.api(t, "/api/v1/services/echo/explain", &x)
	if last := x.Policy[len(x.Policy)-1]; last.Value != "3.0:30%, without effect: all or none of the workers have the version" {
		t.Errorf("%v", last)
	}
	if log := r.log.String(); !strings.Contains(log, "among the 30 % of the canary 2.0 (the key's place is") {
		t.Error("the log of decisions lacks the canary")
	}
}

func TestCanariesAndAttributesOfCookiesThatMakeNoSenseAreRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"canary=2.0:5%":                                  "only for a single service",
		"echo=canary=":                                   "no share",
		"echo=canary=2.0":                                "no share",
		"echo=canary=5%":                                 "no share",
		"echo=canary=:5%":                                "a version is missing",
		"echo=canary=2.0:5":                              "the share is not a percentage",
		"echo=canary=2.0:%":                              "the share is not a percentage",
		"echo=canary=2.0:five%":                          "the share is not a percentage",
		"echo=canary=2.0:-5%":                            "the share is not a percentage",
		"echo=canary=2.0:1e1%":                           "the share is not a percentage",
		"echo=canary=2.0:NaN%":                           "the share is not a percentage",
		"echo=canary=2.0:101%":                           "101 % is not between 0 % and 100 %",
		"echo=canary=2.0 :5%":                            "leave the blanks around it out",
		"echo=canary=2.\u00fc:5%":                        "printable ASCII",
		"echo=canary=" + strings.Repeat("2", 65) + ":5%": "at most 64",
		"echo=canary=2.0:5%;canary=3.0:5%":               "given twice",
	} {
		if _, problems := parsePolicies([]string{text}); len(problems) != 1 || !strings.Contains(problems[0].Reason, reason) {
			t.Errorf("%q: %v, want %q", text, problems, reason)
		}
	}
	for text, reason := range map[string]string{
		"cookie-domain=":                        "not the name of a host",
		"cookie-domain=localhost":               "a domain with a dot",
		"cookie-domain=10.0.0.1":                "a domain with a dot",
		"cookie-domain=[::1]":                   "a domain with a dot",
		"cookie-domain=.example.com":            "leave the first dot out",
		"cookie-domain=*.example.com":           "a wildcard",
		"cookie-domain=my_shop.example.com":     "labels of 1 to 63 letters",
		"cookie-domain=a.-shop.example.com":     "labels of 1 to 63 letters",
		"cookie-domain=https://example.com":     "leave the scheme out",
		"cookie-domain=example.com:80":          "leave the port out",
		"cookie-domain=example.com/x":           "leave the path out",
		"cookie-path=shop":                      "a path from the root",
		"cookie-path=":                          "a path from the root",
		"cookie-path=/a\nb":                     "a path from the root",
		"cookie-same-site=maybe":                "want lax, strict or none",
		"cookie-same-site=":                     "want lax, strict or none",
		"cookie-lifetime=0s":                    "whole seconds from 1m to 720h",
		"cookie-lifetime=721h":                  "whole seconds from 1m to 720h",
		"cookie-lifetime=90.5s":                 "whole seconds from 1m to 720h",
		"cookie-lifetime=day":                   "whole seconds from 1m to 720h",
		"cookie-lifetime=1h;cookie-lifetime=2h": "given twice",
	} {
		if _, problems := parsePolicies([]string{"echo=" + text}); len(problems) != 1 || !strings.Contains(problems[0].Reason, reason) {
			t.Errorf("%q: %v, want %q", text, problems, reason)
		}
	}
	policies, problems := parsePolicies([]string{"echo=canary=a:b=c:0.5%"})
	if c := policies.Canaries["echo"]; problems != nil || c.Version != "a:b=c" || c.Share != 0.005 {
		t.Errorf("%v %v", c, problems)
	}
}
