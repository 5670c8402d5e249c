package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// configured is the configuration of a relay that was started with args.
func configured(t *testing.T, args ...string) Config {
	t.Helper()
	s, err := load(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.Config(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// workerRig is a range of four with a clock of its own.
type workerRig struct {
	*selection.Balancer[struct{}]
	t         *testing.T
	now       selection.Instant
	evictions map[selection.EvictionCause]int
}

func newWorkers(t *testing.T, cfg Config) *workerRig {
	t.Helper()
	w := &workerRig{t: t, now: selection.Instant(time.Hour), evictions: map[selection.EvictionCause]int{}}
	c := cfg.Selection
	c.Rand = rand.New(rand.NewPCG(1, 2)).Uint64
	c.OnEvict = func(cause selection.EvictionCause) { w.evictions[cause]++ }
	var err error
	if w.Balancer, err = selection.NewBalancer[struct{}](c); err != nil {
		t.Fatal(err)
	}
	w.join(4)
	w.wait(time.Hour)
	return w
}

// join makes the range w0 to the one before wn.
func (w *workerRig) join(n int) {
	w.t.Helper()
	var endpoints []selection.Endpoint[struct{}]
	for i := range n {
		endpoints = append(endpoints, selection.Endpoint[struct{}]{ID: fmt.Sprint("w", i), Weight: 1})
	}
	if err := w.Update(endpoints, w.now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workerRig) wait(d time.Duration) {
	w.now += selection.Instant(d)
	w.Refresh(w.now)
}

func (w *workerRig) request(id string, took time.Duration, o selection.Outcome) {
	w.t.Helper()
	p, err := w.Take(id, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	w.now += selection.Instant(took)
	w.Done(p, w.now, selection.Result{Outcome: o})
}

// all has every worker answer n requests.
func (w *workerRig) all(n int) {
	for i := range 4 * n {
		w.request(fmt.Sprint("w", i%4), time.Millisecond, selection.Success)
	}
}

func (w *workerRig) first() selection.EndpointStats { return w.Stats(w.now)[0] }

// relayRig is the relays that a gate forwards to, over connections that open immediately.
// It needs a bubble.
type relayRig struct {
	*relaypool.Pool[noConn]
	t     *testing.T
	stale atomic.Int64
}

type noConn struct{}

func (noConn) Close() error { return nil }

func newRelays(t *testing.T, cfg Config, n int) *relayRig {
	t.Helper()
	c := cfg.Forwarding
	c.Primaries = cmp.Or(c.Primaries, relaypool.DefaultConfig().Primaries) // auto, where many forward
	c.Selector, c.Datacenter, c.Region = "g1", "ber-1", "eu"
	c.Rand = rand.New(rand.NewPCG(1, 2)).Uint64
	r := &relayRig{t: t}
	var err error
	r.Pool, err = relaypool.New(c, func(context.Context, relaypool.Peer, func(error)) (noConn, error) { return noConn{}, nil }, relaypool.Observer{
		OnEvent: func(e relaypool.Event) {
			if e.Reason == relaypool.Stale {
				r.stale.Add(1)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var peers []relaypool.Peer
	for i := range n {
		p := relaypool.Peer{ID: fmt.Sprint("r", i), Address: fmt.Sprintf("10.0.0.%d:7411", i), Datacenter: "ber-2", Region: "eu"}
		if i < 7 {
			p.Datacenter = "ber-1"
		}
		peers = append(peers, p)
	}
	if err := r.Update(peers); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	r.wait(time.Minute)
	return r
}

// wait lets time pass.
func (r *relayRig) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// request sends one to the given relay, by excluding the others.
func (r *relayRig) request(id string, took time.Duration, o selection.Outcome) {
	r.t.Helper()
	s := r.Status()
	lease, err := r.Acquire(r.t.Context(), relaypool.Request{Exclude: slices.DeleteFunc(slices.Concat(s.Primaries, s.Backups), func(other string) bool { return other == id })})
	if err != nil {
		r.t.Fatal(err)
	}
	r.wait(took)
	lease.Report(selection.Result{Outcome: o})
	lease.Release()
	synctest.Wait()
}

// all has every primary answer n requests.
func (r *relayRig) all(n int) {
	for range n {
		for _, id := range r.Status().Primaries {
			r.request(id, time.Millisecond, selection.Success)
		}
	}
}

// until counts how often do is done until it is true, and gives up after a thousand.
func until(done func() bool, do func(i int)) int {
	for i := range 1000 {
		do(i)
		if done() {
			return i + 1
		}
	}
	return 0 // never
}

// Every setting is turned, and what it is for is seen to change, for workers and for the
// relays of a gate where it is about both. One without a line here fails the test.
func TestEverySettingOfEndpointsChangesWhatTheyGet(t *testing.T) {
	average := func(t *testing.T, cfg Config) string {
		w, r := newWorkers(t, cfg), newRelays(t, cfg, 4)
		id := r.Status().Primaries[0]
		for i := range 10 { // the first few weigh more, whatever the setting
			took := 100 * time.Millisecond
			if i == 9 {
				took = 200 * time.Millisecond
			}
			w.request("w0", took, selection.Success)
			w.wait(time.Minute)
			r.request(id, took, selection.Success)
		}
		i := slices.IndexFunc(r.Status().Peers, func(p relaypool.PeerStatus) bool { return p.ID == id })
		return fmt.Sprint(w.first().Latency.Round(time.Millisecond), r.Status().Peers[i].Latency.Round(time.Millisecond))
	}
	// failures is how many in a row evict.
	failures := func(t *testing.T, cfg Config) string {
		w, r := newWorkers(t, cfg), newRelays(t, cfg, 8)
		w.all(50)
		r.all(50)
		id := r.Status().Primaries[0]
		inRow := until(func() bool { return w.first().State != "active" }, func(int) { w.request("w0", 0, selection.Failure) })
		relay := until(func() bool { return !slices.Contains(r.Status().Primaries, id) }, func(int) { r.request(id, 0, selection.Failure) })
		return fmt.Sprint(inRow, relay)
	}
	// share is whether every seventh request that fails, or every fourth of a relay, evicts.
	share := func(t *testing.T, cfg Config) string {
		w, r := newWorkers(t, cfg), newRelays(t, cfg, 8)
		w.all(50)
		r.all(50)
		id := r.Status().Primaries[0]
		worker := until(func() bool { return w.first().State != "active" }, func(i int) {
			if w.all(2); i%3 == 0 {
				w.request("w0", time.Millisecond, selection.Failure)
			}
		})
		relay := until(func() bool { return !slices.Contains(r.Status().Primaries, id) }, func(i int) {
			if r.all(1); i%3 == 0 {
				r.request(id, time.Millisecond, selection.Failure)
			}
		})
		return fmt.Sprint(worker > 0, relay > 0)
	}
	slow := func(t *testing.T, cfg Config) string {
		w, r := newWorkers(t, cfg), newRelays(t, cfg, 8)
		r.all(50)
		id := r.Status().Primaries[0]
		worker := until(func() bool { return w.first().State != "active" }, func(int) {
			w.all(3)
			w.request("w0", 70*time.Millisecond, selection.Success)
			w.wait(30 * time.Millisecond)
		})
		relay := until(func() bool { return !slices.Contains(r.Status().Primaries, id) }, func(int) {
			r.all(1)
			r.request(id, 70*time.Millisecond, selection.Success)
		})
		return fmt.Sprint(worker > 0, relay > 0)
	}
	// out is how often in ten minutes a dead worker is tried, and for how long at most a
	// relay is given no connection.
	out := func(t *testing.T, cfg Config) string {
		w, r := newWorkers(t, cfg), newRelays(t, cfg, 4)
		w.all(50)
		for range 10 * 60 * 10 {
			p, err := w.Pick(w.now, nil)
			if err != nil {
				t.Fatal(err)
			}
			o := selection.Success
			if p.ID() == "w0" {
				o = selection.Failure
			}
			w.Done(p, w.now, selection.Result{Outcome: o})
			w.wait(100 * time.Millisecond)
		}
		longest := time.Duration(0)
		for range 50 {
			r.all(10)
			id := r.Status().Primaries[0]
			for i := 0; i < 4 && slices.Contains(r.Status().Primaries, id); i++ {
				r.request(id, 0, selection.Failure)
			}
			for _, p := range r.Status().Peers {
				longest = max(longest, time.Until(p.OutUntil))
			}
			r.wait(3 * time.Second)
		}
		return fmt.Sprint(w.evictions["half_open"] > 100, longest > 2*time.Second)
	}
	// ramp is whether a worker that has just joined gets its share of the requests, a fifth.
	ramp := func(t *testing.T, cfg Config) string {
		w := newWorkers(t, cfg)
		w.all(50)
		w.wait(time.Second) // takes the median, which a joiner begins with
		w.join(5)
		got := 0
		for range 1000 {
			p, err := w.Pick(w.now, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.ID() == "w4" {
				got++
			}
			w.Done(p, w.now, selection.Result{Outcome: selection.Cancelled})
		}
		return fmt.Sprint(got > 100)
	}
	places := func(t *testing.T, cfg Config) string {
		s := newRelays(t, cfg, 20).Status()
		return fmt.Sprint(len(s.Candidates), len(s.Primaries), len(s.Backups), s.Reach)
	}
	aged := func(t *testing.T, cfg Config) string {
		r := newRelays(t, cfg, 20)
		r.wait(50 * time.Minute)
		return fmt.Sprint(r.stale.Load() > 0)
	}
	dial := func(t *testing.T, cfg Config) string {
		up := cfg.Upstream
		up.Address = "192.0.2.1:80"
		up.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		p, err := upstream.NewPool(up)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var failed *upstream.Fault
		if err := p.Warm(t.Context()); !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return failed.Err.Error()
	}

	turns := map[string]struct {
		see           func(*testing.T, Config) string
		to            string
		before, after string
	}{
		"ewma-alpha":           {average, "1", "120ms 120ms", "200ms 200ms"},
		"evict-after-failures": {failures, "1", "4 4", "2 2"},
		"evict-error-rate":     {share, "0.5", "true true", "false false"},
		"evict-latency-factor": {slow, "0", "true true", "false false"},
		"evict-max-time":       {out, "1s", "false true", "true false"},
		"slow-start":           {ramp, "0", "false", "true"},
		"dial-timeout":         {dial, "50ms", "no connection within 1s", "no connection within 50ms"},
		"forward-candidates":   {places, "6", "7 3 2 same_dc", "6 3 2 same_dc"},
		"forward-primaries":    {places, "2", "7 3 2 same_dc", "7 2 2 same_dc"},
		"forward-backups":      {places, "0", "7 3 2 same_dc", "7 3 0 same_dc"},
		"forward-max-age":      {aged, "30m", "false", "true"},
		"min-peers-per-tier":   {places, "8", "7 3 2 same_dc", "8 3 2 same_region"},
	}
	for name, c := range turns {
		t.Run(name, func(t *testing.T) {
			see := func(cfg Config) (text string) {
				synctest.Test(t, func(t *testing.T) { text = c.see(t, cfg) })
				return text
			}
			if got := see(configured(t)); got != c.before {
				t.Errorf("by default: %s, want %s", got, c.before)
			}
			if got := see(configured(t, "--"+name, c.to)); got != c.after {
				t.Errorf("with %s: %s, want %s", c.to, got, c.after)
			}
		})
	}
	set, s := settings.New("relay", "RINGWAY"), DefaultSettings()
	s.Declare(set)
	for _, v := range set.Values() {
		// Those of idle connections are turned on real ones, below; the size of an answer's head is
		// turned in TestTheHeadOfAnAnswerMayBeAsLongAsTheSettingSays.
		real := strings.Contains(v.Name, "idle-connection") || v.Name == "max-answer-head"
		if (v.Group == "Endpoints" || v.Group == "Forwarding") && turns[v.Name].see == nil && !real {
			t.Errorf("%s is not shown to change anything", v.Name)
		}
	}
}

// countedBackend counts its connections and the requests that it holds.
type countedBackend struct {
	*httptest.Server
	open, held atomic.Int64
	release    chan struct{}
}

// holding is a backend that counts its connections and holds its answers until it is
// released.
func holding(t *testing.T) *countedBackend {
	t.Helper()
	b := &countedBackend{release: make(chan struct{})}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.held.Add(1)
		select {
		case <-b.release:
		case <-r.Context().Done():
		}
	}))
	b.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			b.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			b.open.Add(-1)
		}
	}
	b.Start()
	t.Cleanup(b.Close)
	return b
}

func TestIdleConnectionsToAWorkerAreKeptByTheSettings(t *testing.T) {
	t.Parallel()
	const burst = 6
	for _, c := range []struct {
		name   string
		change func(*Settings)
		want   int64
	}{
		{"as a rule", func(*Settings) {}, burst},
		{"--max-idle-connections", func(s *Settings) { s.Upstream.MaxIdle = 2 }, 2},
		{"--idle-connection-timeout", func(s *Settings) { s.Upstream.IdleTimeout = time.Second }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			r := f.relay(c.change)
			b := holding(t)
			f.worker("w1", service("held", b.Server))
			r.settled(t, "held", 1)
			var clients sync.WaitGroup
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for range burst {
				clients.Go(func() {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.IngressAddr()+"/", nil)
					req.Header.Set(wire.ServiceHeader, "held")
					resp, err := client.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
						t.Error(resp.Status)
					}
				})
			}
			r.await(t, "that all requests are at the worker", func() bool { return b.held.Load() == burst })
			close(b.release)
			clients.Wait()
			r.await(t, fmt.Sprintf("%d connections", c.want), func() bool { return b.open.Load() == c.want })
		})
	}
}

func TestARelayEvictsAWorkerAfterTheConfiguredNumberOfFailures(t *testing.T) {
	t.Parallel()
	for after, want := range map[int]uint64{1: 2, 3: 4} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			r := f.relay(func(s *Settings) {
				s.Selection.ConsecutiveFailures, s.Selection.MaxEviction = after, time.Hour
				s.Selection.LatencyFactor = 0 // a busy machine evicts none for that
				s.Strategies.Set("random")    // so that the broken one gets its share
			})
			broken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				panic(http.ErrAbortHandler) // breaks the connection
			}))
			t.Cleanup(broken.Close)
			for i := range 3 {
				f.echo(fmt.Sprint("w", i))
			}
			f.worker("broken", service("echo", broken))
			r.settled(t, "echo", 4)
			r.await(t, "the eviction", func() bool {
				r.call(t, "GET", "/", nil, "Ringway-Service: echo")
				for _, p := range r.forwarding(t).Peers {
					if p.Node == "broken" && p.State == "evicted" {
						if p.Failures != want {
							t.Errorf("evicted after %d failures, want %d", p.Failures, want)
						}
						return true
					}
				}
				return false
			})
		})
	}
}

func TestAGateForwardsToTheConfiguredNumberOfRelays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i := range 6 {
		f.relay(func(s *Settings) {
			s.Datacenter, s.Region = "ber-1", "eu"
			if i >= 3 {
				s.Datacenter = "ber-2"
			}
		})
	}
	at := func(change func(*Settings)) *runningRelay {
		return f.relay(func(s *Settings) {
			s.Role, s.Datacenter, s.Region = identity.RoleGate, "ber-1", "eu"
			change(s)
		})
	}
	gates := []struct {
		gate                           *runningRelay
		candidates, primaries, backups int
		reach                          string
	}{
		{at(func(*Settings) {}), 3, 3, 0, "same_dc"},
		{at(func(s *Settings) { s.Plans.PeersPerTier = 4 }), 6, 6, 0, "same_region"},
		{at(func(s *Settings) {
			s.Plans.PeersPerTier, s.Forwarding.Candidates, s.Forwarding.Primaries, s.Forwarding.Backups = 4, 4, 1, 3
		}), 4, 1, 3, "same_region"},
	}
	f.echo("w1")
	for _, g := range gates {
		g.gate.await(t, fmt.Sprintf("%+v", g), func() bool {
			d := g.gate.forwarding(t)
			return len(d.AffineRelays) == 6 && d.Forwarding != nil && len(d.Forwarding.Candidates) == g.candidates &&
				len(d.Forwarding.Primaries) == g.primaries && len(d.Forwarding.Backups) == g.backups && d.Forwarding.Reach == g.reach
		})
	}
}

func TestEndpointSettingsAreTakenToTheirBoundsAndNoFurther(t *testing.T) {
	for name, c := range map[string]struct{ good, bad []string }{
		"ewma-alpha":              {[]string{"0.001", "1"}, []string{"0", "-1", "1.1", "NaN"}},
		"evict-after-failures":    {[]string{"1", "1000000"}, []string{"0", "-3", "1000001", "3.5"}},
		"evict-error-rate":        {[]string{"0.001", "0.999"}, []string{"0", "1", "5%"}},
		"evict-latency-factor":    {[]string{"0", "1.5", "1000"}, []string{"1", "-2", "1001", "inf"}},
		"evict-max-time":          {[]string{"1s", "24h"}, []string{"999ms", "0", "25h", "30"}},
		"slow-start":              {[]string{"0", "1h"}, []string{"-1s", "61m"}},
		"dial-timeout":            {[]string{"10ms", "10s"}, []string{"0", "9ms", "11s"}},
		"idle-connection-timeout": {[]string{"1s", "24h"}, []string{"0", "999ms", "25h"}},
		"max-answer-head":         {[]string{"4096", "1048576"}, []string{"4095", "1048577"}},
		"max-idle-connections":    {[]string{"1", "10000"}, []string{"0", "10001"}},
		"forward-candidates":      {[]string{"5", "1000"}, []string{"0", "4", "1001"}},
		"forward-primaries":       {[]string{"1", "6"}, []string{"0", "7", "41"}},
		"forward-backups":         {[]string{"0", "5"}, []string{"-1", "6", "41"}},
		"forward-max-age":         {[]string{"1s", "2000000h"}, []string{"0", "999ms"}},
	} {
		for _, text := range c.good {
			cfg := configured(t, "--"+name, text)
			cfg.Membership.BindAddr = anyPort
			if err := Check(cfg); err != nil {
				t.Errorf("--%s %s passes, and a relay with it cannot be made: %v", name, text, err)
			}
		}
		for _, text := range c.bad {
			_, err := load(t, "--"+name, text)
			var problems settings.Problems
			if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Allowed == "" || problems[0].Setting != name && problems[0].Setting != "forward-candidates" {
				t.Errorf("--%s %s: %v", name, text, err)
			}
		}
	}
	// With as many of all as there may be.
	cfg := configured(t, "--forward-candidates", "80", "--forward-primaries", "40", "--forward-backups", "40")
	if err := Check(cfg); err != nil {
		t.Error(err)
	}
}

func TestAGateRefusesWhatItWouldNotFollow(t *testing.T) {
	for name, value := range map[string]string{"peer-slack": "4", "peer-drain-delay": "7s", "allow-clear-text": "legacy", "slow-start": "9s"} {
		if _, err := load(t, "--"+name, value); err != nil {
			t.Errorf("a relay refuses --%s: %v", name, err)
		}
		_, err := load(t, "--role", "gate", "--"+name, value)
		var problems settings.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Setting != name ||
			!strings.Contains(err.Error(), "would do nothing") || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("a gate and --%s: %v", name, err)
		}
	}
	if _, err := load(t, "--role", "gate"); err != nil {
		t.Errorf("a gate with nothing set: %v", err)
	}
}
