package routing

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// A connection that is open proves nothing: behind a broken path it stays open.
func TestARelayThatReachesNoWorkerForTenSecondsReportsItWithoutAnyTraffic(t *testing.T) {
	var cut bool
	dial := func(context.Context, string, string) (net.Conn, error) {
		if cut {
			return nil, errors.New("no route to host")
		}
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		return ours, nil
	}
	var pools []*upstream.Pool
	for range 3 {
		p, err := upstream.NewPool(upstream.Config{Address: "worker:80", Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		if err := p.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		pools = append(pools, p)
	}
	r := newReach(Config{ReachTimeout: 10 * time.Second, Registerer: prometheus.NewRegistry()})
	now := time.Unix(0, 0)
	// after is the time until the reason is there, or is not, up to limit.
	after := func(limit time.Duration, reason bool) time.Duration {
		for passed := time.Duration(0); passed < limit; passed += time.Second {
			r.probe(t.Context(), pools, "worker", now)
			r.running.Wait()
			if got := r.reason.Load(); (got != nil) == reason {
				return passed
			}
			now = now.Add(time.Second)
		}
		return limit
	}
	const hour = time.Hour
	if got := after(hour, true); got != hour {
		t.Errorf("without traffic a relay that reaches its workers is not ready after %v", got)
	}
	if got := testutil.ToFloat64(r.probes.WithLabelValues(probeOK)); got < 360 || got > 720 {
		t.Errorf("%v probes in an hour, want one in 5 to 10 s", got)
	}
	cut = true
	// The last proof is up to half of the timeout old.
	if got := after(hour, true); got < 4*time.Second || got > 11*time.Second {
		t.Errorf("a relay that is cut off is not ready after %v", got)
	}
	if reason := *r.reason.Load(); !strings.Contains(reason, "reaches no worker: none of the 3") {
		t.Errorf("the reason is %q", reason)
	}
	if got := after(time.Minute, false); got != time.Minute {
		t.Errorf("ready again after %v, and still cut off", got)
	}
	cut = false
	if got := after(hour, false); got > 6*time.Second {
		t.Errorf("a relay that reaches its workers again is ready after %v", got)
	}

	// Where there is no worker to reach, nothing is wrong.
	cut, pools = true, nil
	if got := after(hour, true); got != hour {
		t.Errorf("a relay without workers is not ready after %v", got)
	}
}

// paths are workers, each behind a path that opens its share of connections.
type paths struct {
	pools  []*upstream.Pool
	opens  []float64
	mu     sync.Mutex // guards random
	random *rand.Rand
	reach  *reach
	now    time.Time
}

func newPaths(t *testing.T, opens ...float64) *paths {
	p := &paths{opens: opens, random: rand.New(rand.NewPCG(1, 2)), now: time.Unix(0, 0)}
	for i := range opens {
		dial := func(context.Context, string, string) (net.Conn, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.random.Float64() >= p.opens[i] {
				return nil, context.DeadlineExceeded
			}
			ours, theirs := net.Pipe()
			_ = theirs.Close()
			return ours, nil
		}
		pool, err := upstream.NewPool(upstream.Config{Address: "worker:80", Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		p.pools = append(p.pools, pool)
	}
	p.reach = newReach(Config{ReachTimeout: 10 * time.Second, Registerer: prometheus.NewRegistry()})
	return p
}

// pass lets seconds pass, with this many requests that need a connection to a random worker in
// each, and returns in how many the relay was unreached and how often this has changed.
func (p *paths) pass(t *testing.T, seconds, requests int) (unreached, changes int) {
	was := p.reach.reason.Load() != nil
	for range seconds {
		for range requests {
			_ = p.pools[p.random.IntN(len(p.pools))].Probe(t.Context())
		}
		p.reach.probe(t.Context(), p.pools, "worker", p.now)
		p.reach.running.Wait()
		p.now = p.now.Add(time.Second)
		is := p.reach.reason.Load() != nil
		if is {
			unreached++
		}
		if is != was {
			was = is
			changes++
		}
	}
	return unreached, changes
}

// With 80 % loss, a fifth of the connections is opened if packets are lost one way.
func TestARelayThatLosesMostPacketsIsUnreachedWithinFifteenSecondsAndDoesNotFlap(t *testing.T) {
	for _, opens := range []float64{0.2, 0.05} {
		p := newPaths(t, 1, 1, 1, 1)
		if unreached, _ := p.pass(t, 60, 2); unreached > 0 {
			t.Fatalf("unreached for %d s while no packet is lost", unreached)
		}
		for i := range p.opens {
			p.opens[i] = opens
		}
		if _, changes := p.pass(t, 15, 2); changes != 1 {
			t.Errorf("%g are opened: %d changes within 15 s, want one", opens, changes)
		}
		if unreached, changes := p.pass(t, 120, 0); unreached != 120 || changes > 0 {
			t.Errorf("%g are opened: unreached for %d s of two minutes, %d changes", opens, unreached, changes)
		}
		if reason := *p.reach.reason.Load(); !strings.Contains(reason, "reach") || !strings.Contains(reason, "worker") {
			t.Errorf("the reason is %q", reason)
		}
		for i := range p.opens {
			p.opens[i] = 1
		}
		if unreached, changes := p.pass(t, 60, 2); changes != 1 || unreached > 10 {
			t.Errorf("%g were opened: unreached for %d s more, %d changes", opens, unreached, changes)
		}
	}
}

// The workers of one service are gone, and those of another one are not.
func TestTheNetworkIsNotBlamedForDeadWorkersNextToOneThatLives(t *testing.T) {
	for name, requests := range map[string]int{"many requests": 20, "few requests": 1, "none": 0} {
		p := newPaths(t, 1, 0, 0, 0, 0, 0, 0, 0)
		if unreached, _ := p.pass(t, 600, requests); unreached > 0 {
			t.Errorf("%s: unreached for %d s of 600", name, unreached)
		}
	}
}
