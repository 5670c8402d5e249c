//go:build linux

package netns

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

const (
	// lasting is how long a partition lasts at least: until connections of before have
	// been tried, evicted and tried again.
	lasting = 25 * time.Second
	// healing bounds the time from a network that works to a fleet that is whole. Members
	// look for lost ones every 30 s ± 50 %, each at its own times.
	healing = 30 * time.Second
)

func long() bool { return os.Getenv("LONG_TESTS") != "" }

// Nothing notifies a relay that the packets of a worker are lost: its connections stay
// open and new ones are neither taken nor refused.
func TestABlackHoleFailsNoGETAndTheWorkerIsBackAfterwards(t *testing.T) {
	for name, lose := range map[string]func(*fleet, *host){
		"packets are dropped": func(f *fleet, h *host) { f.isolate(h) },
		"the link is down":    func(f *fleet, h *host) { f.down(h) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gets := int64(2_000) // all phases together
			if long() {
				gets = 10_000
			}
			f := startFleet(t, 2, 4)
			lost := f.Workers[0]
			l := f.startLoad(t, f.Relays...)
			l.more(t, gets/10)
			procs.Await(t, lost.ID+" gets requests", func() bool { return l.answered(lost.ID, time.Time{}) })

			lose(f, f.of[lost.ID])
			cut := time.Now()
			for _, r := range f.Relays {
				procs.Await(t, r.ID+" has evicted the worker or knows that it is dead", func() bool {
					return !slices.ContainsFunc(f.peers(r), func(p peer) bool { return p.Node == lost.ID && p.State == "active" })
				})
				procs.Await(t, r.ID+" no longer sees the worker", func() bool { return !slices.Contains(f.IDs(r), lost.ID) })
			}
			t.Logf("it was gone from the views after %v", time.Since(cut).Round(time.Millisecond))
			l.more(t, gets*8/10)

			healed := time.Now()
			f.heal()
			f.becomesWhole(healing)
			back := time.Now()
			procs.Await(t, lost.ID+" gets requests again", func() bool { return l.answered(lost.ID, back) })
			l.more(t, gets/10)
			f.wellServed(t, l.stop(), out([]*member{lost}, cut, healed)...)
		})
	}
}

func TestBothSidesOfAPartitionServeAndGrowTogetherAgain(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 4, 6)
	type side struct {
		relays, workers []*member
		load            *load
	}
	sides := []*side{{relays: f.Relays[:2], workers: f.Workers[:3]}, {relays: f.Relays[2:], workers: f.Workers[3:]}}
	for _, s := range sides {
		s.load = f.startLoad(t, s.relays...)
		s.load.more(t, 200)
	}
	of := func(s *side) []*host { return f.hostsOf(slices.Concat(s.relays, s.workers)...) }
	f.drop(of(sides[0]), of(sides[1]))
	cut := time.Now()
	for _, s := range sides {
		own := procs.IDs(slices.Concat(s.relays, s.workers))
		for _, r := range s.relays {
			procs.Await(t, r.ID+" sees its own side only", func() bool { return slices.Equal(f.IDs(r), own) })
		}
	}
	t.Logf("relays saw their own side only after %v", time.Since(cut).Round(time.Millisecond))
	procs.Await(t, "the partition is old", func() bool { return time.Since(cut) > lasting })
	if long() {
		// Now the views accept the loss, and each side plans without the other.
		for _, s := range sides {
			for _, r := range s.relays {
				procs.AwaitFor(t, 2*procs.Patience, r.ID+" trusts its view", func() bool { return !f.degraded(r) })
				procs.Await(t, r.ID+" connects to its own side only", func() bool {
					return !slices.ContainsFunc(f.peers(r), func(p peer) bool { return !slices.Contains(procs.IDs(s.workers), p.Node) })
				})
			}
		}
	}
	healed := time.Now()
	f.heal()
	f.becomesWhole(healing)
	for i, s := range sides {
		s.load.more(t, 200)
		f.wellServed(t, s.load.stop(), out(sides[1-i].workers, cut, healed)...)
	}
}

func TestARelayThatIsCutOffIsNotReadyAndRecovers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3, 3)
	lost, others := f.Relays[0], f.Relays[1:]
	l := f.startLoad(t, others...)
	l.more(t, 100)
	cut := time.Now()
	f.isolate(f.of[lost.ID])
	procs.Await(t, "it is not ready, and says that it reaches no worker", func() bool {
		ok, reasons := f.ready(lost)
		return !ok && strings.Contains(strings.Join(reasons, " "), "reaches no worker")
	})
	t.Logf("not ready after %v", time.Since(cut).Round(time.Millisecond))
	if status := f.Get(lost, "/healthz", nil); status != http.StatusOK {
		t.Errorf("/healthz of the relay that is cut off is %d: it would be restarted", status)
	}
	for _, r := range others {
		procs.Await(t, r.ID+" no longer sees it", func() bool { return !slices.Contains(f.IDs(r), lost.ID) })
		if ok, reasons := f.ready(r); !ok {
			t.Errorf("%s is not ready, although it is not cut off: %q", r.ID, reasons)
		}
	}
	l.more(t, 100)
	f.heal()
	f.becomesWhole(healing)
	again := f.startLoad(t, lost)
	again.more(t, 100)
	f.wellServed(t, again.stop())
	f.wellServed(t, l.stop())
}

// Relays that restart while they reach no relay of before generate a key of their own. The judge reports
// it if they use it in the end.
func TestRelaysThatRestartInAPartitionSignWithTheKeyOfTheFleetAfterwards(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3, 2)
	away := f.Relays[1:]
	lacks := func(r *member) bool { return f.key(r) == "" }
	procs.Await(t, "the fleet has a key", func() bool { return !slices.ContainsFunc(f.Relays, lacks) && !f.forked() })
	f.drop(f.hostsOf(away...), f.hostsOf(slices.Concat(f.Workers, f.Relays[:1])...))
	for _, r := range away {
		r.Kill()
	}
	for _, r := range away {
		r.Process = procs.Start(t, r.Config)
	}
	procs.Await(t, "those that are away have a key", func() bool { return !slices.ContainsFunc(away, lacks) })
	if !f.forked() {
		t.Error("there is no fork to heal")
	}
	f.heal()
	f.becomesWhole(healing)
}

// Of a relay that loses most packets, a request or an answer comes through now and then.
func TestARelayThatLosesMostPacketsIsNotReadyUntilItsNetworkHeals(t *testing.T) {
	losses, watched := []int{80}, 10*time.Second
	if long() {
		losses, watched = []int{80, 95}, 2*time.Minute
	}
	for _, percent := range losses {
		t.Run(fmt.Sprint(percent, " percent"), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3, 3)
			lossy := f.Relays[0]
			l := f.startLoad(t, f.Relays...)
			l.more(t, 100)
			began := time.Now()
			f.lose(f.of[lossy.ID], percent)
			procs.Await(t, "it is not ready, and says that it reaches no worker or few", func() bool {
				ok, reasons := f.ready(lossy)
				return !ok && strings.Contains(strings.Join(reasons, " "), "reaches")
			})
			t.Logf("not ready after %v", time.Since(began).Round(time.Millisecond))
			for end := time.Now().Add(watched); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // watches a state
				if ok, _ := f.ready(lossy); ok {
					t.Errorf("ready %v after the loss began", time.Since(began).Round(time.Millisecond))
				}
				for _, r := range f.Relays[1:] {
					if ok, reasons := f.ready(r); !ok {
						t.Errorf("%s is not ready, although it loses nothing: %q", r.ID, reasons)
					}
				}
				if t.Failed() {
					break
				}
			}
			f.heal()
			f.becomesWhole(healing)
			after := time.Now()
			l.more(t, 100)
			results := l.stop()
			for _, r := range results {
				if r.err != nil && (r.At.After(after) || r.Client != lossy.ID) {
					t.Fatalf("failed through %s: %v", r.Client, r.err)
				}
			}
			f.judge(t, results)
		})
	}
}

// A relay that has lost most members keeps its plan, because the loss may be its own. A worker that
// dies then takes no connection, and no request waits for it until its time is up. The
// machine may stall, so there are three tries. Each has a fleet of its own, because only the first
// request after the death can wait.
func TestAWorkerThatDiesLastInAPartitionKeepsNoRequestWaiting(t *testing.T) {
	if !long() {
		t.Skip("gossip of two members needs a minute: LONG_TESTS=1 make test-netns")
	}
	t.Parallel()
	for try := range 3 {
		inTime := false
		t.Run(fmt.Sprint("try ", try+1), func(t *testing.T) { inTime = lastWorkerDies(t) })
		if inTime || t.Failed() {
			return
		}
	}
	t.Errorf("no POST of three got an answer within %v", attempt+spare)
}

// lastWorkerDies reports whether a request is answered in time when the only worker in reach has died.
func lastWorkerDies(t *testing.T) bool {
	t.Helper()
	f := startFleet(t, 3, 6)
	relay, last := f.Relays[0], f.Workers[0]
	near := f.hostsOf(relay, last)
	f.drop(near, f.hostsOf(slices.Concat(f.Relays[1:], f.Workers[1:])...))
	procs.Await(t, relay.ID+" has lost most members", func() bool { return f.degraded(relay) })
	procs.Await(t, "requests reach the worker that is left", func() bool {
		status, _ := post(t, relay, attempt+spare)
		return status == http.StatusOK
	})
	f.isolate(f.of[last.ID])
	procs.Await(t, relay.ID+" knows that the last worker failed", func() bool { return !slices.Contains(f.IDs(relay), last.ID) })
	began := time.Now()
	status, body := post(t, relay, procs.Patience)
	took := time.Since(began)
	t.Logf("%d after %v: %s", status, took.Round(time.Millisecond), body)
	if took > attempt+spare {
		return false
	}
	if status != http.StatusBadGateway && status != http.StatusServiceUnavailable {
		t.Errorf("a POST got %d, want 502 or 503: %s", status, body)
	}
	f.heal()
	f.becomesWhole(healing)
	again := f.startLoad(t, relay)
	again.more(t, 100)
	f.wellServed(t, again.stop())
	return true
}

// post sends a POST through a relay, and gives it up after a time.
func post(t *testing.T, through *member, within time.Duration) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+through.Ingress+"/", strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Ringway-Service", echo)
	status, body, err = procs.Ask(&http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}, req)
	if err != nil {
		t.Logf("POST: %v", err)
	}
	return status, body
}
