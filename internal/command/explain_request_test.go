package command_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	adminapi "github.com/ringway/ringway/internal/process"
)

func TestAnExplainedRequestIsReadable(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/requests/a/b/explain" || r.URL.EscapedPath() != "/api/v1/requests/a%2Fb/explain" {
			adminapi.WriteError(w, http.StatusNotFound, "not remembered")
			return
		}
		adminapi.WriteJSON(w, http.StatusOK, api.ExplainedRequest{
			ID: "a/b", Relay: "r1", Service: "echo", Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), DurationMs: 1.5, Status: 503, Outcome: "failed", Code: "no_endpoint",
			Attempts: []api.ExplainedAttempt{
				{Endpoint: "w2", ChosenBy: "p2c", Failure: "dial", Decision: &api.Decision{
					Strategy: "p2c", Origin: "default", Winner: "w2", Reason: "it scores lower", Measure: "expected cost", Range: 7,
					Candidates: []api.Candidate{{Node: "w1", Score: 12.25, Note: "pair 1"}, {Node: "w2", Score: 3.5, Note: "pair 1"}},
				}},
				{Endpoint: "r2", ChosenBy: "relay_pool", Status: 421},
				{Decision: &api.Decision{Strategy: "p2c", Origin: "default", Reason: "none is left", Range: 7}},
			},
		})
	}))
	t.Cleanup(server.Close)
	run := func(id string) (string, error) {
		c := command.ExplainRequestCommand()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetArgs([]string{id, "--admin-addr", server.Listener.Addr().String()})
		c.SilenceErrors, c.SilenceUsage = true, true
		err := c.Execute()
		return out.String(), err
	}
	out, err := run("a/b")
	if err != nil {
		t.Fatal(err)
	}
	const want = `request  a/b
service  echo
relay    r1
began    2026-03-01T12:00:00Z
result   503 failed no_endpoint
took     1.500 ms

attempt 1
endpoint   w2
chosen by  p2c
result     dial
strategy   p2c (the default)
reason     it scores lower
score      expected cost
range      7 workers

WON  CANDIDATE  SCORE  NOTE
-    w1         12.25  pair 1
yes  w2           3.5  pair 1

attempt 2
endpoint   r2
chosen by  relay_pool
result     421

attempt 3
endpoint  none
strategy  p2c (the default)
reason    none is left
range     7 workers
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if _, err := run("other"); !errors.Is(err, command.ErrNothingMatched) || !strings.Contains(err.Error(), "not remembered") {
		t.Error(err)
	}
}
