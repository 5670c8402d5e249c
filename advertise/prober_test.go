package advertise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const workerHost, relayHost = "10.0.0.1", "10.0.0.2"

// cable is the network that endpoints are connected to over: gossip has another.
type cable struct {
	*memnet.Network
	worker, relay *memnet.Host
}

func newCable(t *testing.T) *cable {
	n := memnet.New(memnet.Config{})
	t.Cleanup(func() { _ = n.Close() })
	return &cable{n, n.Host(workerHost), n.Host(relayHost)}
}

// serve listens on a port of the worker until stop.
func (w *cable) serve(t *testing.T, port int) (stop func()) {
	t.Helper()
	l, err := w.worker.Listen(fmt.Sprintf("%s:%d", workerHost, port))
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = l.Close() }
}

func echoOn(port int, tags ...string) []Service {
	return []Service{{Name: "echo", Address: fmt.Sprintf("%s:%d", workerHost, port), Tags: tags}}
}

// probe runs a prober over a relay's catalogue.
func (p *node) probe(t *testing.T, dial func(context.Context, string) (net.Conn, error)) *prober {
	t.Helper()
	x, err := newProber(proberConfig{Catalogue: p.catalogue, Dial: dial, Registerer: p.registry})
	if err != nil {
		t.Fatal(err)
	}
	p.net.running.Go(func() { _ = x.run(p.net.ctx) })
	return x
}

// outcomes counts how often Expire came to that.
func outcomes(t *testing.T, p *node, outcome string) int {
	t.Helper()
	return int(logtest.Series(t, p.registry, "ringway_expiry_outcomes_total")[outcome])
}

func unreachable(t *testing.T, p *node) int {
	t.Helper()
	return int(logtest.Series(t, p.registry, "ringway_advertise_endpoints_unreachable")[""])
}

// one is the only endpoint that p sees.
func one(t *testing.T, p *node) Endpoint {
	t.Helper()
	all := endpoints(p)
	if len(all) != 1 {
		t.Fatalf("%s sees %d endpoints, want 1", p.member.ID, len(all))
	}
	return all[0]
}

func TestAnEndpointThatRefusesIsUnreachableHereOnlyAndBackWhenItConnects(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		w := newCable(t)
		stop := w.serve(t, 80)
		relay, other := n.join("relay-0", identity.RoleRelay), n.join("relay-1", identity.RoleRelay)
		offer(t, n.join("worker-0", identity.RoleWorker), echoOn(80))
		settle(2 * time.Second)
		x := relay.probe(t, w.relay.Dial)

		x.observe(one(t, relay)) // wrongly: it is alive
		settle(time.Second)
		if one(t, relay).Unreachable || outcomes(t, relay, "fresh") != 1 {
			t.Fatal("an endpoint that accepts connections was taken out of use")
		}

		stop()
		before := relay.catalogue.View().Checksum()
		for range 3 { // many requests reach it
			x.observe(one(t, relay))
		}
		settle(time.Second)
		if !one(t, relay).Unreachable || outcomes(t, relay, "expired") != 1 || unreachable(t, relay) != 1 {
			t.Fatalf("%+v, want it unreachable and counted once", one(t, relay))
		}
		if v := relay.catalogue.View(); len(v.workers("echo")) != 1 || v.Checksum() != before || one(t, other).Unreachable {
			t.Error("plans, checksums and other relays must not notice")
		}
		settle(time.Minute)
		if !one(t, relay).Unreachable || outcomes(t, relay, "expired") != 1 || outcomes(t, relay, "already") < 10 {
			t.Error("re-checks that fail change nothing and claim nothing")
		}

		w.serve(t, 80)
		settle(6 * time.Second) // a re-check
		if one(t, relay).Unreachable || unreachable(t, relay) != 0 {
			t.Error("it accepts connections again and is still unreachable")
		}
	})
}

func TestANewerRecordIsANewOffer(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		w := newCable(t)
		relay, worker := n.join("relay-0", identity.RoleRelay), n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echoOn(80))
		settle(2 * time.Second)
		x := relay.probe(t, w.relay.Dial)
		x.observe(one(t, relay))
		settle(time.Second)
		if !one(t, relay).Unreachable {
			t.Fatal("without a listener it is not unreachable")
		}
		offer(t, worker, echoOn(80, "restarted"))
		settle(time.Second)
		if one(t, relay).Unreachable {
			t.Fatal("the worker published a newer record, which must be tried")
		}
		x.observe(one(t, relay))
		settle(time.Second)
		if !one(t, relay).Unreachable || outcomes(t, relay, "expired") != 2 {
			t.Fatal("the newer offer is as dead as the older")
		}
		worker.catalogue.Offer(nil)
		settle(10 * time.Second)
		if unreachable(t, relay) != 0 {
			t.Error("a mark outlives its endpoint")
		}
	})
}

func TestSilenceIsARefusalAfterTheTimeout(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		w := newCable(t)
		w.serve(t, 80)
		relay := n.join("relay-0", identity.RoleRelay)
		offer(t, n.join("worker-0", identity.RoleWorker), echoOn(80))
		settle(2 * time.Second)
		x := relay.probe(t, w.relay.Dial)
		w.Block(netip.MustParseAddr(relayHost), netip.MustParseAddr(workerHost))
		x.observe(one(t, relay))
		settle(900 * time.Millisecond)
		if one(t, relay).Unreachable {
			t.Error("given up before the timeout")
		}
		settle(200 * time.Millisecond)
		if !one(t, relay).Unreachable {
			t.Error("no answer within the timeout, and not unreachable")
		}
	})
}

func TestAShortageOfThisNodeIsNoFaultOfTheEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"files":            {os.NewSyscallError("socket", syscall.EMFILE), false},
		"ports":            {os.NewSyscallError("connect", syscall.EADDRNOTAVAIL), false},
		"a name server":    {&net.DNSError{Err: "timeout", IsTimeout: true, UnwrapErr: context.DeadlineExceeded}, false},
		"a caller":         {context.Canceled, false},
		"no error":         {nil, false},
		"a listener there": {os.NewSyscallError("connect", syscall.ECONNREFUSED), true},
		"a route":          {os.NewSyscallError("connect", syscall.EHOSTUNREACH), true},
		"a network":        {os.NewSyscallError("connect", syscall.ENETUNREACH), true},
		"an answer":        {os.ErrDeadlineExceeded, true},
	} {
		if got := Refused(fmt.Errorf("dial: %w", c.err)); got != c.refused {
			t.Errorf("%s: refused %t, want %t", name, got, c.refused)
		}
	}
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		offer(t, n.join("worker-0", identity.RoleWorker), echoOn(80))
		settle(2 * time.Second)
		var log logtest.Log
		noFiles := func(context.Context, string) (net.Conn, error) { return nil, syscall.EMFILE }
		x, err := newProber(proberConfig{Catalogue: relay.catalogue, Dial: noFiles, Registerer: relay.registry, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		n.running.Go(func() { _ = x.run(n.ctx) })
		x.observe(one(t, relay))
		settle(time.Second)
		if one(t, relay).Unreachable || outcomes(t, relay, "error") != 1 {
			t.Error("an endpoint was blamed for a lack of files here")
		}
		if log.Lines(`"endpoint":"echo of worker-0 at 10.0.0.1:80"`) != 1 {
			t.Errorf("the log does not name the endpoint once: %s", log.String())
		}
	})
}

func TestANodeThatMayBeCutOffFindsOutDeadEndpointsAllTheSame(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		w := newCable(t)
		relay := n.join("relay-0", identity.RoleRelay)
		offer(t, n.join("worker-0", identity.RoleWorker), echoOn(80))
		settle(2 * time.Second)
		x := relay.probe(t, w.relay.Dial)
		relay.snapshots.Store(relay.Snapshot().WithDepartures(nil, true))
		settle(time.Second)
		x.observe(one(t, relay))
		settle(time.Second)
		if !one(t, relay).Unreachable {
			t.Error("it accepts no connection and gets requests as long as membership is degraded")
		}
	})
}

func TestWhoWithdrawsOrRenewsWhileTheDialRunsIsFirst(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*testing.T, *network, *node)
		outcome   string
		left      int
	}{
		"withdraws": {func(_ *testing.T, _ *network, w *node) { w.catalogue.Offer(nil) }, "already", 0},
		"dies":      {func(_ *testing.T, n *network, _ *node) { n.kill("worker-0"); n.detect("worker-0") }, "already", 0},
		"moves":     {func(t *testing.T, _ *network, w *node) { offer(t, w, echoOn(81)) }, "already", 1},
		"renews":    {func(t *testing.T, _ *network, w *node) { offer(t, w, echoOn(80, "new")) }, "fresh", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, n *network) {
				relay, worker := n.join("relay-0", identity.RoleRelay), n.join("worker-0", identity.RoleWorker)
				offer(t, worker, echoOn(80))
				settle(2 * time.Second)
				dialling, refuse := make(chan struct{}), make(chan struct{})
				x := relay.probe(t, func(context.Context, string) (net.Conn, error) {
					close(dialling)
					<-refuse
					return nil, syscall.ECONNREFUSED
				})
				x.observe(one(t, relay))
				<-dialling
				c.meanwhile(t, n, worker)
				settle(3 * time.Second)
				close(refuse)
				settle(time.Second)
				if outcomes(t, relay, c.outcome) != 1 || unreachable(t, relay) != 0 || len(endpoints(relay)) != c.left {
					t.Errorf("%d times %s, %d unreachable, %v; want once, none, %d endpoints",
						outcomes(t, relay, c.outcome), c.outcome, unreachable(t, relay), endpoints(relay), c.left)
				}
				for _, e := range endpoints(relay) {
					if e.Unreachable {
						t.Error("the new offer is blamed for the old")
					}
				}
			})
		})
	}
}

// However an expiry and a withdrawal fall together, exactly one of them removes the
// endpoint.
func TestOfExpiryAndWithdrawalExactlyOneRemovesTheEndpoint(t *testing.T) {
	n := newNetwork(t, 0)
	defer n.close()
	relay := n.join("relay-0", identity.RoleRelay)
	worker := membership.Member{ID: "worker-0", Epoch: 1, Role: identity.RoleWorker}
	n.mu.Lock()
	n.members["worker-0"] = worker
	n.publish()
	n.mu.Unlock()
	for v := range relay.catalogue.Watch(t.Context()) {
		if v.Members() != nil && len(v.Members().Members()) == 2 {
			break
		}
	}
	x := relay.probe(t, func(context.Context, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
	sequence := uint64(0)
	publish := func(t *rapid.T, services []Service) func() {
		sequence++
		raw, err := Record{NodeID: "worker-0", Epoch: 1, Sequence: sequence, Services: services}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, result, err := relay.catalogue.merge(relay.catalogue.examine(raw)); result != applied {
				panic(fmt.Sprint(result, err))
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if err := relay.catalogue.onLoop(n.ctx, publish(t, echoOn(80))); err != nil {
			t.Fatal(err)
		}
		at := target{instance{"worker-0", 1}, "echo", echoOn(80)[0].Address}
		withdraw := publish(t, nil)
		rounds := rapid.IntRange(1, 4).Draw(t, "readers")
		var mu sync.Mutex
		reports := map[string]int{}
		report := func(who string) {
			mu.Lock()
			reports[who]++
			mu.Unlock()
		}
		var actors sync.WaitGroup
		for range rounds {
			actors.Go(func() {
				if outcome, err := x.expire(n.ctx, at); err != nil || outcome == checkExpired {
					report(fmt.Sprint(outcome, err))
				}
			})
		}
		actors.Go(func() {
			_ = relay.catalogue.onLoop(n.ctx, func() {
				if sequence, there := relay.catalogue.offers(at); there && !relay.catalogue.builder.unreachable.has(at, sequence) {
					report("withdrawn")
				}
				withdraw()
			})
		})
		actors.Wait()
		if reports["withdrawn"]+reports["expired <nil>"] != 1 || len(reports) != 1 {
			t.Fatalf("reports %v, want exactly one", reports)
		}
	})
}

func TestABadProberIsRefused(t *testing.T) {
	if _, err := newProber(proberConfig{}); err == nil || !strings.Contains(err.Error(), "Catalogue is nil") {
		t.Error(err)
	}
	good := proberConfig{Catalogue: &Catalogue{}, Registerer: prometheus.NewRegistry()}
	bad := good
	bad.Recheck = -1
	if _, err := newProber(bad); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Error(err)
	}
	if _, err := newProber(good); err != nil {
		t.Error(err)
	}
	if _, err := newProber(good); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("registered twice: %v", err)
	}
}
