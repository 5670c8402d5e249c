package circuit

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/selection"
)

func breakers(t testing.TB, cfg Config) *Breakers {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// send sends a request for each letter: s succeeds, f fails, i is ignored. It
// returns which were allowed.
func send(b *Breakers, caller, outcomes string) string {
	var out strings.Builder
	for _, o := range outcomes {
		ticket, err := b.Allow(caller, "billing", "w1")
		if err != nil {
			out.WriteByte('-')
			continue
		}
		out.WriteRune(o)
		ticket.Done(map[rune]selection.Outcome{'s': selection.Success, 'f': selection.Failure, 'i': selection.Cancelled}[o])
	}
	return out.String()
}

func TestACircuitOpensWhenMoreThanHalfOfMoreThanFiveRequestsFail(t *testing.T) {
	for outcomes, want := range map[string]string{
		"ffffff" + "s":       "ffffff-", // six of six
		"fffff" + "s":        "fffffs",  // five are too few
		"sssfff" + "s":       "sssfffs", // half is not more than half
		"ssffff" + "s":       "ssffff-",
		"sssffff" + "s":      "sssffff-",
		"ffffffff":           "ffffff--",
		"iiiiiifffff" + "s":  "iiiiiifffffs", // ignored ones are no requests
		"ssssiiiiiiiiii":     "ssssiiiiiiiiii",
		"iiiiiiffffffi":      "iiiiiiffffff-",
		"ssssssffffff" + "s": "ssssssffffffs",
		"ssssssfffffff":      "ssssssfffffff",
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := send(breakers(t, DefaultConfig()), "web", outcomes); got != want {
				t.Errorf("%s: %s were allowed, want %s", outcomes, got, want)
			}
		})
	}
}

func TestFailuresOfAnotherPeriodDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		send(b, "web", "fffff")
		time.Sleep(time.Second + 1)
		if got := send(b, "web", "fffff"+"s"); got != "fffffs" {
			t.Errorf("%s were allowed", got)
		}
	})
}

// Timeouts are usually longer than a period, and count as much as failures that come soon.
func TestARequestCountsInThePeriodInWhichItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		begin := func(n int) (tickets []Ticket) {
			for range n {
				ticket, err := b.Allow("web", "billing", "w1")
				if err != nil {
					t.Fatal(err)
				}
				tickets = append(tickets, ticket)
			}
			return tickets
		}
		end := func(tickets []Ticket) {
			for _, ticket := range tickets {
				ticket.Done(selection.NoAnswer)
			}
		}
		late, early := begin(10), begin(10)
		time.Sleep(2 * time.Second)
		end(early)
		if got := send(b, "web", "s"); got != "-" {
			t.Errorf("after ten timeouts: %s", got)
		}
		time.Sleep(time.Second + 1)
		end(late)
		if got := send(b, "web", "s"); got != "s" {
			t.Errorf("half-open, after the end of requests from before the circuit opened: %s", got)
		}
		for range 4 {
			time.Sleep(time.Second + 1)
			send(b, "web", "s")
		}
		if got := send(b, "web", "s"); got != "s" {
			t.Fatalf("after five good probes: %s", got)
		}
	})
}

// The probes have found the endpoint healthy since.
func TestARequestFromBeforeTheCircuitOpenedDoesNotCountAfterItHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		var late []Ticket
		for range 10 {
			ticket, _ := b.Allow("web", "billing", "w1")
			late = append(late, ticket)
		}
		send(b, "web", "ffffff")
		for range 5 {
			time.Sleep(time.Second + 1)
			send(b, "web", "s")
		}
		for _, ticket := range late {
			ticket.Done(selection.NoAnswer)
		}
		if got := send(b, "web", "ss"); got != "ss" {
			t.Errorf("%s were allowed", got)
		}
	})
}

func TestAnOpenCircuitTakesOneProbeInAPeriodAndClosesAfterFiveGoodOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		send(b, "web", "ffffff")
		for probe := range 5 {
			time.Sleep(time.Second - 1)
			if got := send(b, "web", "sss"); probe == 0 && got != "---" {
				t.Errorf("before the first period has passed: %s", got)
			} else if probe > 0 && got != "---" {
				t.Errorf("probe %d within the period of the one before: %s", probe+1, got)
			}
			time.Sleep(2 * time.Nanosecond)
			if got := send(b, "web", "sss"); probe < 4 && got != "s--" {
				t.Errorf("probe %d: %s, want one", probe+1, got)
			} else if probe == 4 && got != "sss" {
				t.Errorf("after the fifth good probe: %s, want all", got)
			}
		}
	})
}

func TestAProbeThatFailsStartsAgainAndOneThatIsIgnoredChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		send(b, "web", "ffffff")
		probe := func(o string) {
			t.Helper()
			time.Sleep(time.Second + 1)
			if got := send(b, "web", o); got != o {
				t.Fatalf("the probe was refused")
			}
		}
		for _, o := range []string{"s", "s", "s", "s", "f"} {
			probe(o)
		}
		for _, o := range []string{"s", "i", "s", "s", "i", "s"} {
			probe(o)
			if got := send(b, "web", "s"); got != "-" {
				t.Fatal("closed too early")
			}
		}
		probe("s")
		if got := send(b, "web", "sss"); got != "sss" {
			t.Errorf("after five good probes: %s", got)
		}
	})
}

func TestOnlyOneProbeIsInFlightHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		send(b, "web", "ffffff")
		time.Sleep(time.Second + 1)
		probe, err := b.Allow("web", "billing", "w1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_, err = b.Allow("web", "billing", "w1")
		if err == nil || !strings.Contains(err.Error(), "while a probe is in flight") {
			t.Errorf("got %v", err)
		}
		probe.Done(selection.Success)
		if got := send(b, "web", "ss"); got != "s-" {
			t.Errorf("after it: %s", got)
		}
	})
}

// An event stream is a probe that lasts. One that breaks off immediately does not succeed.
func TestAProbeSucceedsWhenItsAnswerHasLastedForAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		probe := func() Ticket {
			t.Helper()
			time.Sleep(time.Second + 1)
			ticket, err := b.Allow("web", "billing", "w1")
			if err != nil {
				t.Fatal(err)
			}
			return ticket.Answered()
		}
		send(b, "web", "ffffff")
		for range 10 {
			probe().Done(selection.Failure)
			if got := send(b, "web", "s"); got != "-" {
				t.Fatal("closed by answers that break off")
			}
		}
		var streams []Ticket
		for range 5 {
			streams = append(streams, probe())
		}
		time.Sleep(time.Second + 1)
		if got := send(b, "web", "sss"); got != "sss" {
			t.Errorf("beside five answers that last: %s", got)
		}
		for _, stream := range streams { // its end is not the result of a probe any more
			stream.Done(selection.Failure)
		}
		if got := send(b, "web", "ss"); got != "ss" {
			t.Errorf("after their end: %s", got)
		}
	})
}

func TestTheRefusalNamesCallerServiceEndpointAndRemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		send(b, "web", "ffffff")
		time.Sleep(300 * time.Millisecond)
		_, err := b.Allow("web", "billing", "w1")
		const want = `circuit: service is not healthy: "billing" at w1 failed too often for caller "web", the next probe in 700ms: use another endpoint, or try again later`
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		var refusal *NotHealthyError
		if !errors.As(err, &refusal) || refusal.RetryAfter != 700*time.Millisecond || refusal.Endpoint != "w1" {
			t.Errorf("got %+v", refusal)
		}
	})
}

func TestACircuitIsOneCallersForOneServiceAtOneEndpoint(t *testing.T) {
	b := breakers(t, DefaultConfig())
	send(b, "web", "ffffff")
	for _, k := range []key{{"batch", "billing", "w1"}, {"web", "search", "w1"}, {"web", "billing", "w2"}} {
		if _, err := b.Allow(k.caller, k.service, k.endpoint); err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
	if got := send(b, "web", "s"); got != "-" {
		t.Errorf("the circuit itself: %s", got)
	}
}

func TestOffAllowsEverythingAndAllocatesNothing(t *testing.T) {
	var off *Breakers
	on := breakers(t, func() Config { c := DefaultConfig(); c.Exempt = []string{"ads"}; return c }())
	for name, allow := range map[string]func() (Ticket, error){
		"off":    func() (Ticket, error) { return off.Allow("web", "billing", "w1") },
		"exempt": func() (Ticket, error) { return on.Allow("web", "ads", "w1") },
	} {
		if n := testing.AllocsPerRun(100, func() {
			ticket, err := allow()
			if err != nil {
				t.Fatal(err)
			}
			ticket.Done(selection.Failure)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestTheLeastRecentlyUsedCircuitIsForgotten(t *testing.T) {
	registry := prometheus.NewRegistry()
	cfg := DefaultConfig()
	cfg.MaxCircuits, cfg.Registerer = 2, registry
	b := breakers(t, cfg)
	send(b, "a", "ffffff")
	late, _ := b.Allow("b", "billing", "w1")
	send(b, "a", "s")
	send(b, "c", "s") // b goes, a stays open
	if got := send(b, "a", "s"); got != "-" {
		t.Errorf("a: %s", got)
	}
	late.Done(selection.Failure) // of a circuit that was dropped
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ringway_circuit_forgotten_total Circuits that were forgotten because there were too many.
# TYPE ringway_circuit_forgotten_total counter
ringway_circuit_forgotten_total 1
# HELP ringway_circuit_rejected_total Requests that a circuit refused, or would have refused without report-only mode.
# TYPE ringway_circuit_rejected_total counter
ringway_circuit_rejected_total 2
# HELP ringway_circuit_transitions_total Changes of circuits, by the state they changed to.
# TYPE ringway_circuit_transitions_total counter
ringway_circuit_transitions_total{state="closed"} 0
ringway_circuit_transitions_total{state="half_open"} 0
ringway_circuit_transitions_total{state="open"} 1
# HELP ringway_circuits Circuits (one per caller and service), by state: closed, half_open, open.
# TYPE ringway_circuits gauge
ringway_circuits{state="closed"} 1
ringway_circuits{state="half_open"} 0
ringway_circuits{state="open"} 1
`)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "register metrics") {
		t.Errorf("registered twice: %v", err)
	}
}

func TestEveryBadSettingIsReportedInOneError(t *testing.T) {
	_, err := New(Config{FailureShare: 1, MinRequests: -1})
	const want = `circuit: FailureShare is 1, allowed is 0 or more, less than 1
circuit: MaxCircuits is 0, allowed is 1 or more
circuit: MinRequests is -1, allowed is 0 or more
circuit: Period is 0s, allowed is more than 0
circuit: Probes is 0, allowed is 1 to 1000`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestEverySettingChangesBehaviour(t *testing.T) {
	// Six failures, and one probe in each of the next ten half seconds.
	story := func(t *testing.T, cfg Config) string {
		b := breakers(t, cfg)
		out := send(b, "web", "ssffff"+"ss") + " "
		for range 10 {
			time.Sleep(500*time.Millisecond + 1)
			out += send(b, "web", "ss") + " "
		}
		return out
	}
	synctest.Test(t, func(t *testing.T) {
		usual := story(t, DefaultConfig())
		turns := map[string]func(*Config){
			"Period":       func(c *Config) { c.Period = 400 * time.Millisecond },
			"FailureShare": func(c *Config) { c.FailureShare = 0.7 },
			"MinRequests":  func(c *Config) { c.MinRequests = 2 },
			"Probes":       func(c *Config) { c.Probes = 1 },
			"Exempt":       func(c *Config) { c.Exempt = []string{"billing"} },
			"ReportOnly":   func(c *Config) { c.ReportOnly = true },
		}
		for name, turn := range turns {
			cfg := DefaultConfig()
			turn(&cfg)
			if got := story(t, cfg); got == usual {
				t.Errorf("%s changes nothing: %s", name, got)
			}
		}
		fields := reflect.TypeFor[Config]()
		for i := range fields.NumField() {
			// The other two have tests of their own.
			if name := fields.Field(i).Name; turns[name] == nil && !slices.Contains([]string{"MaxCircuits", "Registerer"}, name) {
				t.Errorf("%s is not shown to change anything", name)
			}
		}
	})
}

func TestReportOnlyCountsAndLetsPass(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ReportOnly = true
	b := breakers(t, cfg)
	if got := send(b, "web", "ffffffffff"); got != "ffffffffff" {
		t.Errorf("%s were allowed", got)
	}
	if got := testutil.ToFloat64(b.metrics.rejected); got != 4 {
		t.Errorf("%v counted, want 4", got)
	}
}

func TestManyConcurrentCallersOpenAndProbeOneCircuitAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breakers(t, DefaultConfig())
		send(b, "web", "ffffff")
		for range 20 {
			time.Sleep(time.Second + 1)
			var callers sync.WaitGroup
			var mu sync.Mutex
			allowed := 0
			for range 16 {
				callers.Go(func() {
					ticket, err := b.Allow("web", "billing", "w1")
					if err != nil {
						return
					}
					mu.Lock()
					allowed++
					mu.Unlock()
					time.Sleep(time.Millisecond)
					ticket.Done(selection.Failure)
				})
			}
			callers.Wait()
			if allowed != 1 {
				t.Errorf("%d probes in a period", allowed)
			}
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n, " circuits"), func(b *testing.B) {
			br := breakers(b, DefaultConfig())
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("caller-", i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ticket, err := br.Allow(names[i%n], "billing", "w1")
				if err != nil {
					b.Fatal(err)
				}
				ticket.Done(selection.Success)
			}
		})
	}
	b.Run("off", func(b *testing.B) {
		var off *Breakers
		b.ReportAllocs()
		for b.Loop() {
			ticket, _ := off.Allow("web", "billing", "w1")
			ticket.Done(selection.Success)
		}
	})
}
