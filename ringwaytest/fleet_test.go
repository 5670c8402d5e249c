package ringwaytest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/ringwaytest"
	"github.com/ringway/ringway/selection/router"
)

func bubble(t *testing.T, test func(t *testing.T, f *ringwaytest.Fleet)) {
	synctest.Test(t, func(t *testing.T) { test(t, ringwaytest.New(t)) })
}

func named(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, id) })
}

func get(t *testing.T, relay http.RoundTripper, service string) string {
	t.Helper()
	resp, err := (&http.Client{Transport: relay}).Get("http://" + service + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, string(body), err)
	}
	return string(body)
}

// workers are the workers of the service that a relay can use.
func workers(relay *router.Router, service string) (ids []string) {
	endpoints, _ := relay.Endpoints(service)
	for _, e := range endpoints {
		ids = append(ids, e.NodeID)
	}
	slices.Sort(ids)
	return ids
}

func TestAFleetAnswersRequestsWhileItsWorkersComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T, f *ringwaytest.Fleet) {
		f.StartWorker("w1", named("w1"), "echo") // before there is a relay
		first, second := f.StartRelay("r1"), f.StartRelay("r2")
		f.StartWorker("w2", named("w2"), "echo")
		f.Settle()
		step := func(what string, want ...string) {
			t.Helper()
			for name, relay := range map[string]*router.Router{"r1": first, "r2": second} {
				if got := workers(relay, "echo"); !slices.Equal(got, want) {
					t.Errorf("%s: %s has the workers %q, want %q", what, name, got, want)
				}
				for range 10 {
					if got := get(t, relay, "echo"); !slices.Contains(want, got) {
						t.Errorf("%s: %s answers through %s", what, got, name)
					}
				}
			}
		}
		step("at first", "w1", "w2")
		f.Stop("w1")
		step("just after an orderly stop", "w2")
		f.StartWorker("w1", named("w1"), "echo")
		f.StartWorker("w3", named("w3"), "echo")
		f.Settle()
		step("with a third", "w1", "w2", "w3")
		f.Kill("w2")
		f.Settle()
		step("after a crash", "w1", "w3")
		f.Cut("w3")
		f.Settle()
		step("while one is cut off", "w1")
		f.Heal()
		f.Settle()
		step("healed", "w1", "w3")
		f.Kill("r2")
		second = first
		f.Settle()
		step("with one relay", "w1", "w3")
	})
}

func TestARequestSurvivesTheCrashOfItsWorker(t *testing.T) {
	bubble(t, func(t *testing.T, f *ringwaytest.Fleet) {
		relay := f.StartRelay("r1")
		f.StartWorker("w1", named("w1"), "echo")
		f.StartWorker("w2", named("w2"), "echo")
		f.Settle()
		f.Kill("w1") // the relay does not know yet
		for range 20 {
			if got := get(t, relay, "echo"); got != "w2" {
				t.Errorf("%s answers", got)
			}
		}
	})
}

func TestARelayThatIsCutOffKnowsOnlyItsSide(t *testing.T) {
	bubble(t, func(t *testing.T, f *ringwaytest.Fleet) {
		near, far := f.StartRelay("r1"), f.StartRelay("r2")
		for _, id := range []string{"w1", "w2", "w3"} {
			f.StartWorker(id, named(id), "echo")
		}
		f.Settle()
		f.Cut("r2", "w3")
		f.Settle()
		if got := workers(near, "echo"); !slices.Equal(got, []string{"w1", "w2"}) {
			t.Errorf("r1 has the workers %q", got)
		}
		if got := get(t, far, "echo"); got != "w3" {
			t.Errorf("%s answers behind the cut", got)
		}
		f.Heal()
		f.Settle()
		if one, other := workers(near, "echo"), workers(far, "echo"); len(one) != 3 || len(other) != 3 {
			t.Errorf("healed: %q and %q", one, other)
		}
	})
}

func TestAFleetSurvivesTheLossOfAllRelays(t *testing.T) {
	bubble(t, func(t *testing.T, f *ringwaytest.Fleet) {
		f.StartRelay("r1")
		f.StartWorker("w1", named("w1"), "echo")
		f.Settle()
		f.Kill("r1")
		time.Sleep(time.Minute)
		f.StartWorker("w2", named("w2"), "echo")
		relay := f.StartRelay("r2")
		f.Settle()
		if got := workers(relay, "echo"); !slices.Equal(got, []string{"w1", "w2"}) {
			t.Errorf("the new relay has the workers %q", got)
		}
	})
}

// failing is a test that only records how it failed, and what it must clean up.
type failing struct {
	testing.TB
	text string
	end  []func()
}

func (*failing) Helper()            {}
func (f *failing) Cleanup(g func()) { f.end = append(f.end, g) }

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure is how a test fails that does this.
func failure(does func(t testing.TB)) string {
	f, done := &failing{}, make(chan struct{})
	go func() {
		defer close(done)
		does(f)
	}()
	<-done
	for _, end := range f.end {
		end()
	}
	return f.text
}

func TestMistakesEndTheTestWithTheRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		does func(*ringwaytest.Fleet)
		want string
	}{
		"a name that was never used":   {func(f *ringwaytest.Fleet) { f.Kill("w9") }, `no member "w9" was made: there are []`},
		"a name twice":                 {func(f *ringwaytest.Fleet) { f.StartRelay("r1"); f.StartRelay("r1") }, "r1 runs: stop or kill it, or take another id"},
		"the member of another":        {func(f *ringwaytest.Fleet) { f.Member("r1", identity.RoleRelay); f.Stop("r1") }, "the fleet does not run r1"},
		"a role that gossips nothing":  {func(f *ringwaytest.Fleet) { f.Member("c1", identity.RoleClient) }, `the role "client" of c1`},
		"a name that no member can be": {func(f *ringwaytest.Fleet) { f.Member("r 1", identity.RoleRelay) }, `"r 1"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := failure(func(t testing.TB) { c.does(ringwaytest.New(t)) }); !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q in it", name, got, c.want)
			}
		})
	}
	if got := failure(func(t testing.TB) { ringwaytest.New(t) }); !strings.Contains(got, "synctest.Test") {
		t.Errorf("outside of a bubble: %q", got)
	}
}

func TestAGateForwardsThroughRelaysInMemory(t *testing.T) {
	bubble(t, func(t *testing.T, f *ringwaytest.Fleet) {
		f.StartRelay("r1")
		f.StartRelay("r2")
		f.StartWorker("w1", named("w1"), "echo")
		node, err := membership.New(f.Member("g1", identity.RoleGate))
		if err != nil {
			t.Fatal(err)
		}
		gate, err := router.New(router.Config{Node: node})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- gate.Run(ctx) }()
		f.Settle()
		f.Kill("r1") // the gate may be connected to it
		for range 20 {
			if got := get(t, gate, "echo"); got != "w1" {
				t.Errorf("%s answers", got)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheProgramUnderTestIsAMemberLikeTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, f *ringwaytest.Fleet) {
		relay := f.StartRelay("r1")
		f.StartWorker("w1", named("w1"), "echo")

		member := f.Member("picks", identity.RoleObserver)
		node, err := membership.New(member)
		if err != nil {
			t.Fatal(err)
		}
		picks, err := router.New(router.Config{Node: node, PickOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		cfg, socket := f.Advertiser("own", "mine")
		own, err := advertise.NewAdvertiser(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- picks.Run(ctx) }()
		go func() { ended <- own.Serve(ctx, socket, &http.Server{Handler: named("own")}) }()
		f.Settle()

		if got := get(t, relay, "mine"); got != "own" {
			t.Errorf("%s answers", got)
		}
		pick, err := picks.Pick(t.Context(), "echo", "")
		if err != nil || pick.Endpoint().NodeID != "w1" {
			t.Errorf("%+v, %v", pick, err)
		}
		pick.Done(0)
		began := time.Now()
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}
