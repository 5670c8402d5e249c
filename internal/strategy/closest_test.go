package strategy

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// network is a dialer whose connections take as long as its delay.
type network struct {
	mu    sync.Mutex
	delay map[string]time.Duration // by host; absent: refused immediately; negative: never answers
	dials []string
	most  int // connections being opened at a time
	now   int
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	delay, listens := n.delay[host]
	n.dials = append(n.dials, host)
	n.now++
	n.most = max(n.most, n.now)
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.now--
		n.mu.Unlock()
	}()
	if !listens {
		return nil, errors.New("connection refused")
	}
	if delay < 0 {
		delay = 365 * 24 * time.Hour
	}
	// A channel of its own: under the race detector, the runtime of Go 1.26 crashes now and then where many
	// goroutines of a bubble wait for channels of timers.
	over := make(chan struct{})
	defer time.AfterFunc(delay, func() { close(over) }).Stop()
	select {
	case <-over:
		conn, other := net.Pipe()
		return conn, other.Close()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialled returns the hosts dialled since the last call, sorted.
func (n *network) dialled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	dials := n.dials
	n.dials = nil
	slices.Sort(dials)
	return dials
}

func (n *network) set(host string, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[host] = delay
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = map[string]time.Duration{}
}

func (n *network) use(c *Config) { c.Dial = n.dial }

// running runs the strategy until the test ends.
func running(t *testing.T, s *Strategy) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

const ms = time.Millisecond

func abc() *network {
	return &network{delay: map[string]time.Duration{"a": 30 * ms, "b": 10 * ms, "c": 20 * ms}}
}

func TestTheNearestIsClosestAndTheOtherEndFarthest(t *testing.T) {
	for name, want := range map[string][]string{Closest: {"b", "c", "a"}, Farthest: {"a", "c", "b"}} {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, name, abc().use)
			running(t, s)
			update(t, s, endpoints("a", "b", "c"))
			time.Sleep(time.Second)
			d := s.Explain(Request{})
			for i, node := range want {
				if got := pick(t, s, without(want[:i]...)); got != node {
					t.Errorf("%s, excluding %v: %s, want %s", name, want[:i], got, node)
				}
				if d.Candidates[i].Node != node {
					t.Errorf("%s: explained candidate %d is %+v", name, i, d.Candidates[i])
				}
			}
			if got := d.Candidates[0]; got.Score != map[string]float64{"a": 0.03, "b": 0.01}[want[0]] || !strings.Contains(got.Note, "ago") {
				t.Errorf("the first candidate is %+v", got)
			}
			wantError(t, s, without("a", "b", "c"), ErrAllExcluded)
		})
	}
}

func TestBeforeTheFirstMeasurementThereIsNoneAndThenTheNearestIsKnownFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		s := build(t, Closest, n.use)
		update(t, s, endpoints("a", "b", "c"))
		wantError(t, s, Request{}, ErrNoMeasurement) // nothing runs
		wantError(t, s, without("a", "b", "c"), ErrAllExcluded)
		running(t, s)
		synctest.Wait()
		if got := n.dialled(); len(got) != 3 || n.most != 3 {
			t.Errorf("dialled %v, at most %d at a time: want all three at once", got, n.most)
		}
		wantError(t, s, Request{}, ErrNoMeasurement)
		time.Sleep(15 * ms)
		if got := pick(t, s, Request{}); got != "b" {
			t.Errorf("after 15 ms %s", got)
		}
		wantError(t, s, without("b"), ErrNoMeasurement)
		time.Sleep(20 * ms)
		if got := pick(t, s, without("b")); got != "c" {
			t.Errorf("after 35 ms %s is second", got)
		}
	})
}

func TestManyCallersCauseOneRoundOfProbesForEachExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		s := build(t, "closest;expiry=1m", n.use)
		running(t, s)
		update(t, s, endpoints("a", "b", "c"))
		for round := range 3 {
			var callers sync.WaitGroup
			for range 200 {
				callers.Go(func() {
					_, _ = s.Pick(Request{}) // the first find nothing yet
					if err := s.Update(endpoints("a", "b", "c")); err != nil {
						t.Error(err)
					}
					time.Sleep(40 * ms)
					if e, err := s.Pick(Request{}); err != nil || e.Node != "b" {
						t.Error(e, err)
					}
				})
			}
			callers.Wait()
			time.Sleep(59 * time.Second)
			if got := n.dialled(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Fatalf("round %d: dialled %v, want each once", round, got)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestTheExpirySetsHowLongATimeIsUsed(t *testing.T) {
	for text, after := range map[string]time.Duration{"closest;expiry=30s": 30 * time.Second, Closest: 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := abc()
			s := build(t, text, n.use)
			running(t, s)
			update(t, s, endpoints("a", "b", "c"))
			time.Sleep(time.Second)
			n.set("a", ms)
			time.Sleep(after - 2*time.Second)
			if got := pick(t, s, Request{}); got != "b" {
				t.Errorf("%s: before the expiry %s", text, got)
			}
			time.Sleep(2 * time.Second)
			if got := pick(t, s, Request{}); got != "a" {
				t.Errorf("%s: after the expiry %s", text, got)
			}
		})
	}
}

func TestAnAddressThatRefusesIsTriedOnceASecondAtTheShortestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		n.cut()
		s := build(t, "closest;expiry=1s", n.use)
		running(t, s)
		update(t, s, endpoints("a"))
		time.Sleep(9*time.Second + time.Second/2)
		if got := len(n.dialled()); got != 10 {
			t.Errorf("dialled %d times in 9.5 s, want 10", got)
		}
	})
}

func TestTheTimeoutBoundsAProbe(t *testing.T) {
	for text, reached := range map[string]bool{"closest;timeout=25ms": false, "closest;timeout=35ms": true} {
		synctest.Test(t, func(t *testing.T) {
			n, w := abc(), watch(t)
			n.set("hangs", -1)
			s := build(t, text, n.use, w.use)
			running(t, s)
			update(t, s, endpoints("a", "hangs"))
			time.Sleep(time.Second)
			_, err := s.Pick(Request{})
			if reached != (err == nil) {
				t.Errorf("%s: %v", text, err)
			}
			timeouts := 2.0
			if reached {
				timeouts = 1
			}
			if got := w.value(t, "ringway_selection_probes_total", probeTimeout); got != timeouts {
				t.Errorf("%s: %v timeouts counted, want %v", text, got, timeouts)
			}
		})
	}
}

func TestANodeThatIsAddedIsMeasuredImmediatelyAndTheOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		n.set("new", ms)
		s := build(t, Closest, n.use)
		running(t, s)
		update(t, s, endpoints("a", "b"))
		time.Sleep(time.Second)
		n.dialled()
		update(t, s, endpoints("a", "b", "new"))
		time.Sleep(time.Second)
		if got := n.dialled(); !slices.Equal(got, []string{"new"}) {
			t.Errorf("dialled %v", got)
		}
		if got := pick(t, s, Request{}); got != "new" {
			t.Errorf("picked %s", got)
		}
		moved := endpoints("a", "b", "new")
		moved[2].Address = "c:80" // another address is another measurement
		update(t, s, moved)
		if got := pick(t, s, Request{}); got != "b" {
			t.Errorf("picked %s by a time measured elsewhere", got)
		}
		time.Sleep(time.Second)
		if got := n.dialled(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("dialled %v", got)
		}
	})
}

func TestWhenEveryProbeFailsTheOldTimesStayWithTheirAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := abc(), watch(t)
		s := build(t, "closest;expiry=1m", n.use, w.use)
		running(t, s)
		update(t, s, endpoints("a", "b", "c"))
		time.Sleep(time.Second)
		n.cut()
		n.dialled()
		time.Sleep(61 * time.Second) // probed again, and failed
		if got := n.dialled(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("dialled %v", got)
		}
		for i, want := range []string{"b", "c", "a"} {
			if got := pick(t, s, without([]string{"b", "c", "a"}[:i]...)); got != want {
				t.Errorf("place %d: %s, want %s", i, got, want)
			}
		}
		note := s.Explain(Request{}).Candidates[0].Note
		if !strings.Contains(note, "measured 1m1.99s ago") || !strings.Contains(note, "last probe failed") {
			t.Errorf("note %q", note)
		}
		for range 100 {
			pick(t, s, Request{})
		}
		if got := n.dialled(); len(got) != 0 {
			t.Errorf("picks dialled %v: a failure must not make each request probe", got)
		}
		time.Sleep(6 * time.Second) // a tenth of the expiry
		if got := n.dialled(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("after a failure dialled %v, want each once more", got)
		}
		if ok, failed := w.value(t, "ringway_selection_probes_total", probeOK), w.value(t, "ringway_selection_probes_total", probeRefused); ok != 3 || failed != 6 {
			t.Errorf("counted %v good and %v failed probes", ok, failed)
		}
		if got := w.value(t, "ringway_selection_connect_duration_seconds"); got != 3 {
			t.Errorf("%v connect times counted", got)
		}
	})
}

func TestANodeThatFailsItsProbeComesAfterThoseThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		s := build(t, "closest;expiry=1m", n.use)
		running(t, s)
		update(t, s, endpoints("a", "b", "c"))
		time.Sleep(time.Second)
		n.mu.Lock()
		delete(n.delay, "b")
		n.mu.Unlock()
		time.Sleep(time.Minute)
		if got := pick(t, s, Request{}); got != "c" {
			t.Errorf("picked %s", got)
		}
		if got := pick(t, s, without("a", "c")); got != "b" {
			t.Errorf("picked %s as a last resort", got)
		}
		n.set("b", ms)
		time.Sleep(6 * time.Second)
		if got := pick(t, s, Request{}); got != "b" {
			t.Errorf("picked %s after b came back", got)
		}
	})
}

func TestOnlyThePreferredAreMeasuredWhileThereAreAny(t *testing.T) {
	for _, name := range []string{Closest, Farthest} {
		synctest.Test(t, func(t *testing.T) {
			n := abc()
			s := build(t, name+";preferred=c,a,unknown", n.use)
			running(t, s)
			update(t, s, endpoints("a", "b", "c"))
			time.Sleep(time.Second)
			want := map[string]string{Closest: "c", Farthest: "a"}[name]
			if got := pick(t, s, Request{}); got != want || slices.Contains(n.dialled(), "b") {
				t.Errorf("%s: picked %s, want %s, and b not dialled", name, got, want)
			}
			wantError(t, s, without("a", "c"), ErrAllExcluded) // b is no fallback
			update(t, s, endpoints("b"))
			time.Sleep(time.Second)
			if got := pick(t, s, Request{}); got != "b" {
				t.Errorf("%s: picked %s where none of the preferred is there", name, got)
			}
		})
	}
}

func TestNothingIsDialledThatLeftOrHasNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		s := build(t, "closest;expiry=1m", n.use)
		running(t, s)
		list := endpoints("a", "b")
		list[1].Address = ""
		update(t, s, list)
		synctest.Wait()
		update(t, s, list[1:]) // a leaves while it is probed
		time.Sleep(5 * time.Minute)
		if got := n.dialled(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("dialled %v", got)
		}
		wantError(t, s, Request{}, ErrNoMeasurement)
		p := s.picker.(*byDistance)
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, kept := p.measured["a:80"]; kept {
			t.Error("the time of what left is kept")
		}
	})
}

func TestProbesAreBoundedAndOneRunRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{delay: map[string]time.Duration{}}
		var nodes []string
		for _, a := range "abcdefgh" {
			for _, b := range "abcdefgh" {
				n.delay[string(a)+string(b)] = 50 * ms
				nodes = append(nodes, string(a)+string(b))
			}
		}
		s := build(t, Closest, n.use)
		running(t, s)
		update(t, s, endpoints(nodes...))
		synctest.Wait()
		if err := s.Run(t.Context()); err == nil {
			t.Error("a second Run began")
		}
		time.Sleep(time.Second)
		if got := len(n.dialled()); got != len(nodes) || n.most != maxProbes {
			t.Errorf("%d dialled, at most %d at a time; want %d and %d", got, n.most, len(nodes), maxProbes)
		}
	})
}

// tables counts the tables that are seen while addresses are dialled.
type tables struct {
	network
	of   *byDistance
	seen map[*distances]bool
}

func (n *tables) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	n.seen[n.of.table.Load()] = true
	n.mu.Unlock()
	return n.network.dial(ctx, kind, address)
}

func TestManyResultsAreRankedTogetherAndTheFirstImmediately(t *testing.T) {
	for name, took := range map[string]time.Duration{"immediately": 0, "after 1 ms": ms} {
		synctest.Test(t, func(t *testing.T) {
			nodes := numbered("w", 2000)
			n := &tables{network: network{delay: map[string]time.Duration{}}, seen: map[*distances]bool{}}
			for _, node := range nodes {
				n.delay[node] = took
			}
			s := build(t, Closest, func(c *Config) { c.Dial = n.dial })
			n.of = s.picker.(*byDistance)
			update(t, s, endpoints(nodes...))
			running(t, s)
			time.Sleep(took)
			synctest.Wait()
			pick(t, s, Request{})
			time.Sleep(time.Second)
			if got := len(n.of.table.Load().ranked); got != len(nodes) {
				t.Errorf("answered %s: %d of %d are ranked", name, got, len(nodes))
			}
			if got := len(n.seen); got > 40 {
				t.Errorf("answered %s: %d tables for %d results", name, got, len(nodes))
			}
		})
	}
}

func TestAnAddressOfTwoEndpointsIsProbedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		s := build(t, Closest, n.use)
		list := endpoints("a", "b")
		list[1].Address = list[0].Address
		update(t, s, list)
		running(t, s)
		time.Sleep(time.Second)
		if got := n.dialled(); !slices.Equal(got, []string{"a"}) || n.most != 1 {
			t.Errorf("dialled %v, %d at a time", got, n.most)
		}
		if pick(t, s, Request{}) != "a" || pick(t, s, without("a")) != "b" {
			t.Error("the time of the address is not that of both")
		}
	})
}

func TestANewWorkerIsMeasuredBeforeThoseThatDidNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := abc()
		dead := numbered("dead", 1000)
		for _, node := range dead {
			n.delay[node] = -1
		}
		s := build(t, Closest, n.use)
		running(t, s)
		update(t, s, endpoints(dead...))
		time.Sleep(10 * time.Minute)
		if got := len(n.dialled()); got < 4000 {
			t.Errorf("%d probes in ten minutes: the places stay free", got)
		}
		update(t, s, endpoints(append(dead, "a")...))
		time.Sleep(3 * time.Second) // one timeout of 2 s until a place is free
		if got := pick(t, s, Request{}); got != "a" {
			t.Errorf("picked %s", got)
		}
		time.Sleep(10 * time.Minute)
		probed := n.dialled()
		for _, node := range dead { // and none of the others is left waiting
			if got := count(probed, node); got < 4 {
				t.Fatalf("%s was probed %d times in ten minutes", node, got)
			}
		}
		if got := count(probed, "a"); got < 2 {
			t.Errorf("a was probed %d times", got)
		}
	})
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

func TestRunReturnsInTheMiddleOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{delay: map[string]time.Duration{}}
		var nodes []string
		for _, a := range "abcdefghijklmnopqrstuvwxyz" {
			n.delay[string(a)] = -1
			nodes = append(nodes, string(a))
		}
		s := build(t, Closest, n.use)
		update(t, s, endpoints(nodes...))
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		begin := time.Now()
		if err := s.Run(ctx); err != nil || time.Since(begin) != 10*ms {
			t.Errorf("returned %v after %v", err, time.Since(begin))
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		if err := s.Run(ctx); err != nil { // a later one takes over
			t.Error(err)
		}
	})
}

func TestStrategiesWithoutBackgroundWorkHaveNothingToRun(t *testing.T) {
	for _, name := range []string{Stable, Random, Slots} {
		if err := build(t, name).Run(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestClosestMeasuresRealSockets(t *testing.T) {
	near, gone := procs.Listen(t), procs.Listen(t)
	list := endpoints("near", "gone")
	list[0].Address, list[1].Address = near.Addr().String(), gone.Addr().String()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	s := build(t, Closest)
	update(t, s, list)
	running(t, s)
	conn, err := near.Accept() // the probe
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the probe sent %d bytes, error %v; want it to hang up", n, err)
	}
	if err := errors.Join(conn.Close(), near.Close()); err != nil {
		t.Error(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, err := s.Pick(Request{}); err != nil && time.Now().Before(deadline); _, err = s.Pick(Request{}) {
		time.Sleep(ms) // until the outcome is in
	}
	if got := pick(t, s, Request{}); got != "near" {
		t.Errorf("picked %s", got)
	}
	wantError(t, s, without("near"), ErrNoMeasurement)
	if d := s.Explain(Request{}); len(d.Candidates) != 2 || d.Candidates[0].Score <= 0 || d.Candidates[0].Score > 2 || d.Candidates[1].Note != noteUnmeasured {
		t.Errorf("explained as %+v", d.Candidates)
	}
}
