package relaypool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/selection"
)

// wire is a connection that knows when it is closed under a request.
type wire struct {
	fleet *fakeFleet
	peer  string
	lost  func(error)
	users atomic.Int32
}

func (w *wire) Close() error {
	if n := w.users.Load(); n != 0 {
		w.fleet.t.Errorf("a connection to %s was closed under %d requests", w.peer, n)
	}
	w.fleet.mu.Lock()
	defer w.fleet.mu.Unlock()
	if !w.fleet.open[w] {
		w.fleet.t.Errorf("a connection to %s was closed twice", w.peer)
	}
	delete(w.fleet.open, w)
	return nil
}

// fakeFleet is the far ends, in the time of a synctest bubble.
type fakeFleet struct {
	t  testing.TB
	mu sync.Mutex

	open   map[*wire]bool
	dials  map[string]int
	refuse map[string]bool
	takes  map[string]time.Duration // to connect
	hangUp bool                     // immediately after a connection was accepted

	stubborn bool // connecting takes no notice of its context
}

func newFleet(t testing.TB) *fakeFleet {
	return &fakeFleet{t: t, open: map[*wire]bool{}, dials: map[string]int{}, refuse: map[string]bool{}, takes: map[string]time.Duration{}}
}

func (f *fakeFleet) dial(ctx context.Context, peer Peer, lost func(error)) (*wire, error) {
	f.mu.Lock()
	f.dials[peer.ID]++
	takes := f.takes[peer.ID]
	f.mu.Unlock()
	if f.stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse[peer.ID] {
		return nil, errRefused
	}
	w := &wire{fleet: f, peer: peer.ID, lost: lost}
	f.open[w] = true
	if f.hangUp {
		lost(errors.New("hung up"))
	}
	return w, nil
}

func (f *fakeFleet) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

// running starts a pool in the bubble and ends it with the test.
func running(t *testing.T, f *fakeFleet, cfg Config, o Observer) (p *Pool[*wire], stop func()) {
	t.Helper()
	p, err := New(cfg, f.dial, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return p, stop
}

func use(t testing.TB, p *Pool[*wire], r Request) *Lease[*wire] {
	t.Helper()
	l, err := p.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	l.Conn().users.Add(1)
	return l
}

func done(l *Lease[*wire], o selection.Outcome) {
	l.Conn().users.Add(-1)
	l.Report(selection.Result{Outcome: o})
	l.Release()
}

func TestAPoolConnectsServesAndLetsEverythingGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		p, stop := running(t, f, config(), Observer{})
		if err := p.Update(relays(8)); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			done(use(t, p, Request{}), selection.Success)
		}
		synctest.Wait()
		want(t, "connections", f.connections(), 5)
		late := use(t, p, Request{})
		stop()
		want(t, "connections after the end, with a request under way", f.connections(), 1)
		done(late, selection.Success)
		want(t, "and after it", f.connections(), 0)
		if _, err := p.Acquire(t.Context(), Request{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if err := p.Update(relays(8)); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs once") {
			t.Errorf("a second Run: %v", err)
		}
	})
}

// Requests twice a second for three hours, one of them an hour long: every place is
// renewed at least twice, a peer dies and comes back, and no request notices.
func TestNoRequestIsLostWhilePlacesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		p, _ := running(t, f, config(), Observer{})
		p.Update(relays(8))
		long := use(t, p, Request{})
		dials := map[string]int{}
		for i := range 3 * 3600 * 2 {
			l := use(t, p, Request{})
			time.Sleep(500 * time.Millisecond)
			done(l, selection.Success)
			if i == 7200 {
				done(long, selection.Success)
			}
			if n := f.connections(); n > 6 {
				t.Fatalf("%d connections", n)
			}
			for _, id := range p.Status().Primaries {
				dials[id]++
			}
		}
		total := 0
		for _, n := range f.dials {
			total += n
		}
		if total < 15 || total > 20 {
			t.Errorf("%d connections were opened in three hours, want 5, and one for each place every 54 to 60 minutes", total)
		}
		if len(dials) < 4 {
			t.Errorf("the same peers all the time: %v", dials)
		}
	})
}

func TestTheTimeInWhichAClientSendsIsNoLatencyOfThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := running(t, newFleet(t), config(), Observer{})
		if err := p.Update(relays(1)); err != nil {
			t.Fatal(err)
		}
		l := use(t, p, Request{})
		time.Sleep(time.Second)
		l.Report(selection.Result{Outcome: selection.Success, Client: 990 * time.Millisecond})
		if got := p.Status().Peers[0].Latency; got != 10*time.Millisecond {
			t.Errorf("a latency of %v", got)
		}
		l.Conn().users.Add(-1)
		l.Release()
	})
}

func TestARequestWaitsForAConnectionThatIsBeingOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.takes["r1"] = 3 * time.Second
		p, _ := running(t, f, config(), Observer{})
		p.Update(relays(1))
		began := time.Now()
		l := use(t, p, Request{})
		want(t, "waited", time.Since(began), 3*time.Second)
		time.Sleep(7 * time.Millisecond)
		done(l, selection.Success)
		want(t, "latency, without the wait", p.Status().Peers[0].Latency, 7*time.Millisecond)
		l.Report(selection.Result{Outcome: selection.Failure})
		l.Release()
		want(t, "in flight after a second Release", p.Status().Peers[0].InFlight, 0)
		want(t, "failures after a second Report", p.Status().Peers[0].Consecutive, 0)
	})
}

func TestAWaitEndsWithTheContextOrAfterTheConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.takes["r1"] = time.Hour
		metrics := newMetrics(nil)
		cfg := config()
		cfg.ConnectTimeout = 4 * time.Second
		var failed []error
		p, _ := running(t, f, cfg, Observer{Metrics: metrics, OnEvent: func(e Event) {
			if e.Kind == ConnectFailed {
				failed = append(failed, e.Err)
			}
		}})
		p.Update(relays(1))
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the caller is tired"))
		defer cancel()
		_, err := p.Acquire(ctx, Request{})
		if err == nil || !strings.Contains(err.Error(), "the caller is tired") {
			t.Errorf("got %v", err)
		}
		want(t, "in flight", p.Status().Peers[0].InFlight, 0)
		began := time.Now()
		_, err = p.Acquire(t.Context(), Request{})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no connection within 4s") {
			t.Errorf("got %v", err)
		}
		want(t, "waited as long as a connection may take", time.Since(began), 4*time.Second)
		synctest.Wait()
		if len(failed) != 1 || !errors.Is(failed[0], context.DeadlineExceeded) {
			t.Errorf("failures: %v", failed)
		}
		for reason, n := range map[string]float64{rejectedCancelled: 1, rejectedTimeout: 1} {
			want(t, reason, testutil.ToFloat64(metrics.rejected.WithLabelValues(reason)), n)
		}
	})
}

func TestARequestThatWaitedInVainGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		for _, id := range []string{"r1", "r2", "r3", "r4"} {
			f.takes[id], f.refuse[id] = time.Second, true
		}
		f.takes["r5"] = 2 * time.Second
		p, _ := running(t, f, config(), Observer{})
		p.Update(relays(5))
		l := use(t, p, Request{})
		want(t, "peer", l.Peer().ID, "r5")
		done(l, selection.Success)
		f.refuse["r5"], f.takes["r5"] = true, 0
		l.Conn().lost(errors.New("reset"))
		_, err := p.Acquire(t.Context(), Request{})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("when all refuse: %v", err)
		}
	})
}

func TestARequestCallsAPeerThatRefusesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		cfg := config()
		cfg.Streams = 1
		p, _ := running(t, f, cfg, Observer{})
		p.Update(relays(1))
		busy := use(t, p, Request{})
		f.refuse["r1"] = true
		_, err := p.Acquire(t.Context(), Request{})
		if !errors.Is(err, ErrExcluded) || !errors.Is(err, errRefused) {
			t.Errorf("got %v", err)
		}
		want(t, "calls", f.dials["r1"], 2)
		done(busy, selection.Success)
	})
}

func TestAConnectionThatReportsItsLossIsNotUsedAgainAndItsRequestsMayEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		p, _ := running(t, f, config(), Observer{})
		p.Update(relays(1))
		l := use(t, p, Request{})
		time.Sleep(2 * time.Second)
		l.Conn().lost(errors.New("goaway"))
		l.Conn().lost(errors.New("and again"))
		next := use(t, p, Request{}) // waits for the new one
		if next.Conn() == l.Conn() {
			t.Error("the lost connection was used")
		}
		want(t, "connections", f.connections(), 2)
		done(l, selection.Cancelled)
		want(t, "connections", f.connections(), 1)
		done(next, selection.Success)
	})
}

func TestAConnectionThatIsLostBeforeItIsUsedWasNeverOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.hangUp = true
		p, _ := running(t, f, config(), Observer{})
		p.Update(relays(1))
		_, err := p.Acquire(t.Context(), Request{})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "lost as soon as it was opened\nhung up") {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		want(t, "connections", f.connections(), 0)
		want(t, "health", p.Status().Peers[0].Health, Out)
	})
}

func TestWhatFallsIdleIsClosedInTimeAndWhatIsOldIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		cfg := config()
		cfg.Streams, cfg.RefreshInterval = 1, 10*time.Hour
		metrics := newMetrics(nil)
		p, _ := running(t, f, cfg, Observer{Metrics: metrics})
		p.Update(relays(1))
		a, b := use(t, p, Request{}), use(t, p, Request{})
		time.Sleep(time.Minute)
		done(a, selection.Success)
		done(b, selection.Success)
		time.Sleep(5*time.Minute - time.Nanosecond)
		want(t, "connections", f.connections(), 2)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		want(t, "connections after 5 min without requests", f.connections(), 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		want(t, "renewed", testutil.ToFloat64(metrics.evictions.WithLabelValues("stale")), 1)
		want(t, "connections", f.connections(), 1)
	})
}

func TestRunWaitsForConnectionsThatAreBeingOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.stubborn = true
		f.takes["r1"] = 3 * time.Second
		p, stop := running(t, f, config(), Observer{})
		p.Update(relays(1))
		synctest.Wait()
		began := time.Now()
		stop()
		want(t, "waited", time.Since(began), 3*time.Second)
		want(t, "connections", f.connections(), 0)
	})
}

func TestEventsAndLogLinesComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		var log strings.Builder
		var events []string
		p, stop := running(t, f, config(), Observer{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == "detail" {
					return slog.Attr{}
				}
				return a
			}})),
			OnEvent: func(e Event) { events = append(events, e.Kind.String()+" "+e.Peer) },
		})
		p.Update(relays(6))
		synctest.Wait()
		s := p.Status()
		b := s.Primaries[0]
		log.Reset()
		events = nil
		for range 4 {
			done(use(t, p, Request{Exclude: s.Primaries[1:]}), selection.Failure)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		f6 := ""
		for _, peer := range relays(6) {
			if !slices.Contains(slices.Concat(s.Primaries, s.Backups), peer.ID) {
				f6 = peer.ID
			}
		}
		want(t, "events", events, []string{
			"evicted " + b, "promoted " + s.Backups[0], "candidates changed ", "chosen " + f6, "connected " + f6,
		})
		want(t, "log", log.String(), fmt.Sprintf(`level=WARN msg="pool: evicted" peer=%s reason=consecutive_failures role=primary
level=INFO msg="pool: promoted" peer=%s role=primary
level=INFO msg="pool: connected" peer=%s role=backup
`, b, s.Backups[0], f6))
	})
}

func TestAConnectionThatFailsIsLoggedWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.refuse["r1"] = true
		var log logtest.Log
		p, stop := running(t, f, config(), Observer{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p.Update(relays(1))
		synctest.Wait()
		stop()
		if log.Lines(fmt.Sprintf("peer=r1 err=%q", errRefused)) == 0 {
			t.Errorf("no line has the cause: %s", log.String())
		}
	})
}

func TestEveryMetricMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		metrics, err := NewMetrics(registry)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewMetrics(registry); err == nil {
			t.Error("the same metrics are registered twice")
		}
		f := newFleet(t)
		cfg := config()
		cfg.Datacenter, cfg.Region, cfg.Streams, cfg.MaxPerPeer = "dc1", "eu", 1, 2
		p, stop := running(t, f, cfg, Observer{Metrics: metrics})
		if _, err := p.Acquire(t.Context(), Request{}); !errors.Is(err, ErrNoPeers) {
			t.Fatal(err)
		}
		f.refuse["r8"] = true
		p.Update(fleet(1, 1, 7))
		time.Sleep(10 * time.Second)
		gauge := func(state string) float64 { return testutil.ToFloat64(metrics.connections.WithLabelValues(state)) }
		want(t, "primaries", gauge("primary"), 3)
		want(t, "backups", gauge("backup"), 2)

		var leases []*Lease[*wire]
		for range 6 {
			leases = append(leases, use(t, p, Request{}))
		}
		if _, err := p.Acquire(t.Context(), Request{}); !errors.Is(err, ErrExhausted) {
			t.Fatal(err)
		}
		all := p.Status()
		if _, err := p.Acquire(t.Context(), Request{Exclude: append(all.Primaries, all.Backups...)}); !errors.Is(err, ErrExcluded) {
			t.Fatal(err)
		}
		want(t, "primaries' connections", gauge("primary"), 6)
		leases[0].Conn().lost(errors.New("goaway"))
		want(t, "draining", gauge("draining"), 1)
		for _, l := range leases {
			done(l, selection.Success)
		}
		want(t, "draining", gauge("draining"), 0)
		for range 12 { // a half, and never four in a row
			done(use(t, p, Request{Exclude: p.Status().Primaries[1:]}), selection.Failure)
			done(use(t, p, Request{Exclude: p.Status().Primaries[1:]}), selection.Success)
		}
		time.Sleep(time.Minute)
		for range 4 {
			done(use(t, p, Request{Exclude: p.Status().Primaries[1:]}), selection.Failure)
		}
		time.Sleep(61 * time.Minute)
		moved := fleet(1, 1, 7)
		moved[3].Region = "eu"
		p.Update(moved)
		synctest.Wait()
		stop()
		if _, err := p.Acquire(t.Context(), Request{}); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		for _, state := range connectionStates {
			want(t, state+" after the end", gauge(state), 0)
		}
		for name, c := range map[string]prometheus.Counter{
			"promotions":            metrics.promotions,
			"connect failures":      metrics.failed,
			"evictions consecutive": metrics.evictions.WithLabelValues("consecutive_failures"),
			"evictions error_rate":  metrics.evictions.WithLabelValues("error_rate"),
			"evictions stale":       metrics.evictions.WithLabelValues("stale"),
			"changes added":         metrics.candidates.WithLabelValues("peer_added"),
			"changes health":        metrics.candidates.WithLabelValues("health_change"),
			"changes moved":         metrics.candidates.WithLabelValues("peer_moved"),
			"tier same_dc":          metrics.tiers.WithLabelValues("same_dc"),
			"tier same_region":      metrics.tiers.WithLabelValues("same_region"),
			"tier global":           metrics.tiers.WithLabelValues("global"),
			"rejected no_peers":     metrics.rejected.WithLabelValues("no_peers"),
			"rejected exhausted":    metrics.rejected.WithLabelValues("exhausted"),
			"rejected excluded":     metrics.rejected.WithLabelValues("excluded"),
			"rejected closed":       metrics.rejected.WithLabelValues("closed"),
		} {
			if testutil.ToFloat64(c) == 0 {
				t.Errorf("%s: still 0", name)
			}
		}
		problems, err := testutil.GatherAndLint(registry)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
	})
}

// Many callers, peers that come and go, connections that break, all concurrently.
func TestManyCallersInAnOverloadGetConnectionsOrClearErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		cfg := DefaultConfig()
		cfg.Selector, cfg.Streams, cfg.MaxTotal, cfg.MaxAge, cfg.IdleTimeout = "gate-1", 2, 12, 20*time.Second, 5*time.Second
		p, stop := running(t, f, cfg, Observer{})
		p.Update(relays(8))
		var callers sync.WaitGroup
		var served, refused atomic.Int64
		for g := range 8 {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 0))
				for i := range 1000 {
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
					l, err := p.Acquire(t.Context(), Request{Key: fmt.Sprint(rng.IntN(20))})
					if err != nil {
						refused.Add(1)
						if !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrUnavailable) {
							t.Error(err)
						}
						continue
					}
					served.Add(1)
					l.Conn().users.Add(1)
					if rng.IntN(50) == 0 {
						l.Conn().lost(errors.New("reset"))
					}
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
					o := selection.Success
					if rng.IntN(20) == 0 {
						o = selection.Outcome(rng.IntN(4))
					}
					done(l, o)
					if g == 0 && i%40 == 0 {
						p.Update(relays(5 + rng.IntN(8)))
					}
					if n := p.Status().Connections.Total(); n > cfg.MaxTotal {
						t.Errorf("%d connections", n)
					}
				}
			})
		}
		callers.Wait()
		stop()
		want(t, "connections after the end", f.connections(), 0)
		if served.Load() < 7900 {
			t.Errorf("%d requests were served and %d refused", served.Load(), refused.Load())
		}
	})
}
