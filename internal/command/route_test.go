package command_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	adminapi "github.com/ringway/ringway/internal/process"
)

// answering is an admin API that answers every question about a route with a.
func answering(t *testing.T, a api.Route) (addr string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RequestURI())
		adminapi.WriteJSON(w, http.StatusOK, a)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), asked
}

func TestRouteIsReadable(t *testing.T) {
	for name, c := range map[string]struct {
		answer api.Route
		want   string
		err    string
	}{
		"by key": {api.Route{Service: "echo", Relay: "r1", Role: "affine", Key: "alice", Decision: &api.Decision{
			Strategy: "stable", Origin: "advertisement", Key: "alice", Winner: "w2", Reason: "the highest score", Measure: "rendezvous score",
			Candidates: []api.Candidate{
				{Node: "w1", ID: "w1.1", Address: "10.0.0.1:80", Score: 12.25, Note: "evicted for its failures"},
				{Node: "w2", ID: "w2.1", Address: "10.0.0.2:80", Score: 3.5, Note: "usable"},
			},
		}}, `service   echo
relay     r1, affine
key       alice
strategy  stable (advertised by the service)
winner    w2
reason    the highest score
score     rendezvous score

WON  CANDIDATE  SCORE  NOTE
-    w1         12.25  evicted for its failures
yes  w2           3.5  usable
`, ""},
		"by a session cookie": {api.Route{Service: "echo", Relay: "r1", Role: "affine", SessionCookie: "sid", Decision: &api.Decision{
			Strategy: "p2c", Origin: "default", Winner: "w1", Reason: "it scores lower", Measure: "expected cost",
		}}, `service   echo
relay     r1, affine
session   a request with a valid cookie sid goes to the worker that the cookie names; this one has none
strategy  p2c (the default)
winner    w1
reason    it scores lower
score     expected cost
`, ""},
		"by score": {api.Route{Service: "echo", Relay: "r1", Role: "affine", Decision: &api.Decision{
			Strategy: "p2c", Origin: "default", Winner: "w1", Reason: "it scores lower", Measure: "expected cost",
			Candidates: []api.Candidate{
				{Node: "w1", Address: "10.0.0.1:80", Score: 2, Parts: &api.ScoreParts{LatencyMs: 1.5, Queue: 0.25, Headroom: 1.5, Success: 1, Ramp: 1}, Note: "pair 1"},
				{Node: "w2", Address: "10.0.0.2:80", Score: 40, Parts: &api.ScoreParts{LatencyMs: 20, Queue: 1, Headroom: 1.5, Success: 0.98, Ramp: 0.5}, Note: "pair 1"},
			},
		}}, `service   echo
relay     r1, affine
strategy  p2c (the default)
winner    w1
reason    it scores lower
score     expected cost

WON  CANDIDATE  SCORE  LATENCY  QUEUE  HEADROOM  SUCCESS  RAMP  NOTE
yes  w1             2   1.5 ms   0.25       1.5        1     1  pair 1
-    w2            40    20 ms      1       1.5     0.98   0.5  pair 1
`, ""},
		"scores with and without parts": {api.Route{Service: "echo", Relay: "r1", Role: "affine", Decision: &api.Decision{
			Strategy: "p2c", Origin: "default", Winner: "w2", Reason: "it scores lower", Measure: "expected cost",
			Candidates: []api.Candidate{{Node: "w1", Score: 2}, {Node: "w2", Score: 1, Parts: &api.ScoreParts{LatencyMs: 1, Success: 1, Ramp: 1}}},
		}}, `service   echo
relay     r1, affine
strategy  p2c (the default)
winner    w2
reason    it scores lower
score     expected cost

WON  CANDIDATE  SCORE  LATENCY  QUEUE  HEADROOM  SUCCESS  RAMP  NOTE
-    w1             2        -      -         -        -     -  -
yes  w2             1     1 ms      0         0        1     1  -
`, ""},
		"none": {api.Route{Service: "echo", Relay: "r1", Role: "affine", Decision: &api.Decision{
			Strategy: "manual;preferred=w9", Origin: "service_setting", Reason: "w9 is not there", Measure: "place",
		}}, `service   echo
relay     r1, affine
strategy  manual;preferred=w9 (the relay's setting for this service)
winner    none
reason    w9 is not there
score     place
`, "nothing matched: w9 is not there"},
		"forwarding": {api.Route{Service: "echo", Relay: "r1", Role: "forwarding", Key: "alice", Relays: []api.RouteRelay{
			{Relay: "r2", Address: "10.0.0.2:7420", Role: "primary", Health: "healthy", EstimateMs: 1.25, InFlight: 3},
			{Relay: "r3", Address: "10.0.0.3:7420", Role: "backup", Health: "unknown", EstimateMs: 10},
		}}, `service  echo
relay    r1, forwarding
key      alice
reason   r1 does not serve echo: it forwards to one of the relays that do

RELAY  ADDRESS        ROLE     HEALTH   ESTIMATE  IN FLIGHT
r2     10.0.0.2:7420  primary  healthy   1.25 ms          3
r3     10.0.0.3:7420  backup   unknown     10 ms          0
`, ""},
		"limited and blocked": {api.Route{Service: "echo", Relay: "r1", Role: "none", Limits: api.Limits{
			RateLimits: []api.RateLimit{{Of: "route", Subject: "{host: a.test, service: echo, rate: 5/s}", Rate: "5/s", Share: 0.5, PerSecond: 2.5}},
			Blocks:     []api.Block{{Caller: "*", Service: "echo", Origin: "file", Reason: "repair"}},
		}}, `service  echo
relay    r1, none
blocked  for all callers, by file, repair; 0 refused
limit    route {host: a.test, service: echo, rate: 5/s}: 5/s; 50 % at this relay, 2.5/s; 0 refused
reason   echo has no endpoint that takes requests
`, "nothing matched: echo has no endpoint that takes requests"},
		"forwarding to absent": {api.Route{Service: "echo", Relay: "r1", Role: "forwarding"}, `service  echo
relay    r1, forwarding
reason   r1 does not serve echo: it forwards to one of the relays that do
`, "nothing matched: r1 forwards echo and knows no relay that serves it"},
	} {
		t.Run(name, func(t *testing.T) {
			addr, asked := answering(t, c.answer)
			args := []string{"echo", "--admin-addr", addr}
			if c.answer.Key != "" {
				args = append(args, "--key", c.answer.Key)
			}
			out, _, err := execute(t, command.RouteCommand(), args...)
			if out != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", out, c.want)
			}
			if c.err == "" && err != nil || c.err != "" && (!errors.Is(err, command.ErrNothingMatched) || err.Error() != c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			want := "/api/v1/services/echo/route"
			if c.answer.Key != "" {
				want += "?key=" + c.answer.Key
			}
			if len(*asked) != 1 || (*asked)[0] != want {
				t.Errorf("asked %v, want %s", *asked, want)
			}
		})
	}
}

func TestRouteAsksARelayForWhatItWouldDo(t *testing.T) {
	addr := startRelay(t)
	out, _, err := execute(t, command.RouteCommand(), "echo", "--key", "a b&c", "-o", "json", "--admin-addr", addr)
	var a api.Route
	if err != nil || json.Unmarshal([]byte(out), &a) != nil || a.Key != "a b&c" || a.Decision == nil || a.Decision.Winner != "w1" || a.Decision.Strategy != "p2c" {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = execute(t, command.RouteCommand(), "echo", "-o", "yaml", "--admin-addr", addr)
	if err != nil || !strings.HasPrefix(out, "service: echo\n") || !strings.Contains(out, "winner: w1\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = execute(t, command.RouteCommand(), "echo", "-o", "wide", "--admin-addr", addr)
	if err != nil || !strings.Contains(out, "INSTANCE") || !strings.Contains(out, "ADDRESS") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := execute(t, command.RouteCommand(), "absent", "--admin-addr", addr); !errors.Is(err, command.ErrNothingMatched) {
		t.Errorf("%v", err)
	}
	if _, _, err := execute(t, command.RouteCommand(), "echo", "-o", "broad", "--admin-addr", addr); err == nil || !strings.Contains(err.Error(), "allowed are table, json, yaml, wide") {
		t.Errorf("%v", err)
	}
}

// The worker still gets what other relays forward, so only the question about a client's request fails.
func TestRouteOfARequestFailsIfClientsMayNotReachItsService(t *testing.T) {
	a := api.Route{Service: "echo", Relay: "r1", Role: "affine", Naming: &api.Naming{By: "domain"}, Limits: api.Limits{NotForClients: true},
		Decision: &api.Decision{Strategy: "p2c", Origin: "default", Winner: "w1"}}
	addr, _ := answering(t, a)
	out, _, err := execute(t, command.RouteCommand(), "--url", "http://echo.svc.test/", "--admin-addr", addr)
	if !errors.Is(err, command.ErrNothingMatched) || !strings.Contains(err.Error(), "--ingress-service") || !strings.Contains(out, "clients   get 404") {
		t.Errorf("%v\n%s", err, out)
	}
	a.Naming = nil
	addr, _ = answering(t, a)
	if out, _, err = execute(t, command.RouteCommand(), "echo", "--admin-addr", addr); err != nil || !strings.Contains(out, "clients   get 404") {
		t.Errorf("%v\n%s", err, out)
	}
}
