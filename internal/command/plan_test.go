package command_test

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/command"
)

// startRelay is a relay with one worker that offers echo, connected to it. No test
// changes them.
func startRelay(t *testing.T) (admin string) {
	t.Helper()
	if err := asked.await(); err != nil { // a connection that ended is opened again in a moment
		t.Fatal(err)
	}
	return asked.relay
}

func TestPlanAndExplainAreReadable(t *testing.T) {
	admin := startRelay(t)
	for _, c := range []struct {
		verb *cobra.Command
		args []string
		want string
	}{
		{command.PlanCommand(), []string{"echo"}, `service      echo
strategy     projection, index by slot
relays       1, each connected to 1 worker
workers      1, each connected to 1 relay
connections  1
load         from 1.00 to 1.00 times a worker's share

INDEX  RELAY  STATE  WORKERS  TRAFFIC  RANGE
0      r1     there  1        -        [0..1) of 1 (all)
`},
		{command.PlanCommand(), []string{"echo", "--what-if", "strategy=rendezvous,relays=+1,workers=+2"}, `service  echo
what if  strategy=rendezvous,relays=+1,workers=+2
opened   5, at most 3 by one relay (+1)
closed   0

                     NOW         THEN
strategy             projection  rendezvous
index                slot        slot
minimums (m, p)      3, 3        3, 3
relays               1           2
workers              1           3
relays of a service  1           2
connections          1           6
of a relay, least    1           3
of a relay, mean     1.0         3.0
of a relay, most     1           3
requests with a hop  0.0%        0.0%
least loaded worker  1.000       1.000
most loaded worker   1.000       1.000
`},
		{command.ExplainCommand(), []string{"echo"}, `service   echo
relay     r1, affine
reason    r1 is one of the 1 relays that serve echo; its index is the slot that it holds
strategy  projection, index by slot
index     0
range     [0..1) of 1 (all)
policy    request-timeout 30s (the default), attempt-timeout 9.9s (the default), progress-timeout 1m0s (the default), retry idempotent (the default), slots none (the default)
minimums  3 relays for each worker, 3 workers for each relay
ratio     1, of 1 workers and 1 relays
length    1 of 1 workers
computed  TIME

echo: ring of 1 worker, 1 relay (home)
> r1 #
`},
		{command.ExplainCommand(), []string{"echo", "--worker", "w1"}, `service   echo
relay     r1, affine
reason    r1 is one of the 1 relays that serve echo; its index is the slot that it holds
strategy  projection, index by slot
index     0
range     [0..1) of 1 (all)
policy    request-timeout 30s (the default), attempt-timeout 9.9s (the default), progress-timeout 1m0s (the default), retry idempotent (the default), slots none (the default)
minimums  3 relays for each worker, 3 workers for each relay
ratio     1, of 1 workers and 1 relays
length    1 of 1 workers
computed  TIME

worker     w1, ready
in range   yes
reason     all relays of this ring (1) connect to all of its workers (1)
position   0 of 1
distance   0
tier       global, home
address    ADDRESS
connected  yes, link open
weight     1.0000
balancer   active

echo: ring of 1 worker, 1 relay (home)
> r1 #
     ^ w1, position 0
`},
	} {
		got, errs, err := execute(t, c.verb, append(c.args, "--admin-addr", admin)...)
		if err != nil || errs != "" {
			t.Fatalf("%v %s", err, errs)
		}
		var lines []string
		for line := range strings.Lines(got) {
			if name, address, ok := strings.Cut(line, "    127.0.0.1:"); ok && name == "address" && address != "\n" {
				line = "address    ADDRESS\n"
			}
			if at, ok := strings.CutPrefix(line, "computed  "); ok {
				if _, err := time.Parse(time.RFC3339, strings.TrimSpace(at)); err == nil {
					line = "computed  TIME\n"
				}
			}
			lines = append(lines, line)
		}
		if got := strings.Join(lines, ""); got != c.want {
			t.Errorf("%s %v:\n%s\nwant:\n%s", c.verb.Name(), c.args, got, c.want)
		}
	}
}

func TestPlanAndExplainHaveTheSameContentInJSONAndInYAML(t *testing.T) {
	admin := startRelay(t)
	for _, args := range [][]string{{"plan", "echo"}, {"explain", "echo", "--worker", "w1"}} {
		root := &cobra.Command{}
		root.AddCommand(command.PlanCommand(), command.ExplainCommand())
		ask := func(form string) string {
			out, _, err := execute(t, root, append(args, "-o", form, "--admin-addr", admin)...)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		inJSON, inYAML := ask("json"), ask("yaml")
		var a, b any
		if err := errors.Join(json.Unmarshal([]byte(inJSON), &a), yaml.Unmarshal([]byte(inYAML), &b)); err != nil {
			t.Fatalf("%v\n%s\n%s", err, inJSON, inYAML)
		}
		again, err := json.Marshal(b)
		first, _ := json.Marshal(a)
		if err != nil || string(first) != string(again) {
			t.Errorf("%v\n%s\n%s", err, first, again)
		}
		if !strings.HasPrefix(inYAML, "service: echo\n") {
			t.Errorf("the keys have lost their order:\n%s", inYAML)
		}
	}
}

func TestPlanAndExplainOfAMissingNameExitWithNothingMatched(t *testing.T) {
	admin := startRelay(t)
	for want, c := range map[string][]string{
		`the service "absent"`:                  {"plan", "absent"},
		`offered the service "absent"`:          {"explain", "absent"},
		`the worker "w9" does not offer`:        {"explain", "echo", "--worker", "w9"},
		`offered the service "a/b?c"`:           {"plan", "a/b?c"},
		`the worker "a&b" does not offer the s`: {"explain", "echo", "--worker", "a&b"},
	} {
		root := &cobra.Command{}
		root.AddCommand(command.PlanCommand(), command.ExplainCommand())
		if out, _, err := execute(t, root, append(c, "--admin-addr", admin)...); !errors.Is(err, command.ErrNothingMatched) || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: %q, %v", c, out, err)
		}
	}
}

func TestWhatIsNoRelayIsAnErrorThatNamesTheReason(t *testing.T) {
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	addr := stranger.Listener.Addr().String()
	secured := httptest.NewUnstartedServer(http.NotFoundHandler())
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	defer secured.Close()
	for want, args := range map[string][]string{
		"is this the admin address of a relay?": {"--admin-addr", addr},
		"give --admin-tls-cert":                 {"--admin-addr", secured.Listener.Addr().String()},
		"is it running":                         {"--admin-addr", "127.0.0.1:1"},
		"allowed are table, json, yaml":         {"--admin-addr", addr, "-o", "xml"},
		"has no effect without TLS":             {"--admin-addr", addr, "--admin-identity-template", "spiffe://td/{environment}/{cluster}/{role}/{node}"},
	} {
		for _, c := range []*cobra.Command{command.PlanCommand(), command.ExplainCommand()} {
			if _, _, err := execute(t, c, append(args, "echo")...); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, command.ErrNothingMatched) {
				t.Errorf("%s: %v, want %q", c.Name(), err, want)
			}
		}
	}
}
