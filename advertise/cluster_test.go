package advertise

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/ring"
)

func bubble(t *testing.T, loss float64, test func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, loss)
		defer n.close()
		test(t, n)
	})
}

func offer(t *testing.T, p *node, services []Service) {
	t.Helper()
	if err := p.catalogue.Offer(services); err != nil {
		t.Fatal(err)
	}
}

func endpoints(p *node) (all []Endpoint) {
	for e := range p.catalogue.View().Endpoints("echo").All() {
		all = append(all, *e)
	}
	return all
}

func TestMembersAgreeWithin90SecondsAtAFifthOfGossipLost(t *testing.T) {
	for _, size := range []int{5, 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble(t, 0.2, func(t *testing.T, n *network) {
				relay := n.join("relay-0", identity.RoleRelay)
				for i := range size - 1 {
					offer(t, n.join(fmt.Sprintf("worker-%d", i), identity.RoleWorker), echo(1000+i))
				}
				settle(90 * time.Second)
				if got := len(endpoints(relay)); got != size-1 {
					t.Fatalf("the relay sees %d endpoints, want %d", got, size-1)
				}
				for id, p := range n.nodes {
					if got, want := p.catalogue.View().Checksum(), relay.catalogue.View().Checksum(); got != want {
						t.Errorf("%s: checksum %x, the relay's is %x", id, got, want)
					}
				}
			})
		})
	}
}

func TestExchangesAloneMakeMembersAgree(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network) { // all gossip is lost
		relay := n.join("relay-0", identity.RoleRelay)
		for i := range 4 {
			offer(t, n.join(fmt.Sprintf("worker-%d", i), identity.RoleWorker), echo(1000+i))
		}
		settle(5 * time.Minute)
		if got := len(endpoints(relay)); got != 4 {
			t.Fatalf("the relay sees %d endpoints, want 4", got)
		}
	})
}

func TestAJoinerKnowsEverythingImmediately(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		offer(t, n.join("worker-0", identity.RoleWorker), echo(1000))
		n.join("relay-0", identity.RoleRelay)
		settle(2 * time.Minute)
		late := n.join("relay-1", identity.RoleRelay)
		settle(time.Second)
		if got := len(endpoints(late)); got != 1 {
			t.Fatalf("one second after joining the relay sees %d endpoints, want 1", got)
		}
	})
}

func TestAJoinerIsSettledOnlyAfterItHasComparedRecords(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network) {
		w := n.join("w1", identity.RoleWorker)
		settle(time.Second)
		if !w.catalogue.View().Settled() {
			t.Error("a member that is alone has nothing to wait for, and waits")
		}
		offer(t, w, echo(1))
		n.dialTime = time.Second
		r := n.join("r1", identity.RoleRelay)
		settle(900 * time.Millisecond)
		if r.catalogue.View().Settled() {
			t.Error("settled before it has compared anything")
		}
		settle(5 * time.Second)
		if !r.catalogue.View().Settled() || len(endpoints(r)) != 1 {
			t.Errorf("settled %v with endpoints %v", r.catalogue.View().Settled(), endpoints(r))
		}
	})
}

// Three relays that start anew know each other before they know a worker. What they
// compared among themselves does not concern the workers, which come together later.
func TestRelaysThatComparedAmongThemselvesAreNotSettledWhenTheFirstWorkerAppears(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network) { // all gossip is lost: only exchanges have news
		var relays []*node
		for _, id := range []string{"r1", "r2", "r3"} {
			relays = append(relays, n.join(id, identity.RoleRelay))
		}
		settle(5 * time.Second) // a first comparison may reach a relay before it knows us; the next follows a second later
		for _, r := range relays {
			if !r.catalogue.View().Settled() {
				t.Error("relays without a worker have compared, and are not settled")
			}
		}
		n.dialTime = time.Second
		offer(t, n.join("w1", identity.RoleWorker), echo(1))
		settle(900 * time.Millisecond)
		for _, r := range relays {
			if v := r.catalogue.View(); v.Settled() || v.known("echo") {
				t.Errorf("settled %v, with the service %v, before a record could come", v.Settled(), v.known("echo"))
			}
		}
		settle(5 * time.Second)
		for _, r := range relays {
			if v := r.catalogue.View(); !v.Settled() || !v.known("echo") {
				t.Errorf("settled %v, with the service %v, after the records were compared", v.Settled(), v.known("echo"))
			}
		}
		// From then on workers come and go, and relays stay settled.
		n.join("w2", identity.RoleWorker)
		settle(100 * time.Millisecond)
		for _, r := range relays {
			if !r.catalogue.View().Settled() {
				t.Error("a second worker unsettles a relay")
			}
		}
	})
}

// A peer whose place is taken, or that lets this member rest after a slow exchange, answers "busy" for
// many seconds. Pauses that grow meanwhile would keep the member waiting when its peers are free again.
func TestAMemberWhosePartnersWereBusyIsSettledSecondsAfterTheyAreFree(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, 1, func(t *testing.T, n *network) {
			free := time.Now().Add(31 * time.Second)
			asked := 0
			for i := range 3 {
				p := n.join(fmt.Sprint("w", i), identity.RoleWorker)
				n.mu.Lock()
				serve := p.serve
				p.serve = func(ctx context.Context, peer membership.Peer, conn net.Conn) {
					if peer.ID != "r" || !time.Now().Before(free) {
						serve(ctx, peer, conn)
						return
					}
					n.mu.Lock()
					asked++
					n.mu.Unlock()
					f := p.catalogue.newFrames(inward, peer, conn)
					_, _, _ = f.receive(maxOpeningBytes)
					_ = f.send(ctx, frameBusy, nil)
				}
				n.mu.Unlock()
			}
			r := n.joinWith("r", identity.RoleRelay, func(c *Config) { c.Seed = seed + 1 })
			settle(30 * time.Second)
			if r.catalogue.View().Settled() {
				t.Fatal("settled before a comparison")
			}
			settle(5 * time.Second)
			if !r.catalogue.View().Settled() {
				t.Errorf("seed %d: not settled four seconds after its partners are free", seed)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			if asked > 31 {
				t.Errorf("seed %d: it asked busy partners %d times in 31 s, more than once a second", seed, asked)
			}
		})
	}
}

func TestAViewHasBothHalvesOfAPlan(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		n.join("r1", identity.RoleRelay)
		for _, id := range []string{"w1", "w2"} {
			offer(t, n.join(id, identity.RoleWorker), echo(1))
		}
		draining := n.join("w3", identity.RoleWorker)
		offer(t, draining, echo(1))
		draining.catalogue.Drain()
		settle(10 * time.Second)
		v := draining.catalogue.View()
		if got, want := v.workers("echo"), ring.Order("echo", []string{"w1", "w2"}); !slices.Equal(got, want) {
			t.Errorf("workers %v, want %v", got, want)
		}
		if e, ok := v.Endpoint("echo", "w3"); !ok || e.State != Draining {
			t.Errorf("w3 offers %+v, %v", e, ok)
		}
		if _, ok := v.Endpoint("echo", "r1"); ok {
			t.Error("something is offered that is not")
		}
	})
}

func TestEndpointsVanishWithTheirMemberAndReturnWithItsNextLife(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		if len(endpoints(relay)) != 1 {
			t.Fatal("the relay does not see the endpoint")
		}
		n.kill("worker-0")
		n.detect("worker-0")
		settle(100 * time.Millisecond)
		v := relay.catalogue.View()
		if v.Endpoints("echo").count != 0 || !v.known("echo") {
			t.Fatalf("after the failure: %v, known %t; want no endpoint of a known service", v.Endpoints("echo"), v.known("echo"))
		}
		if _, there := v.Members().Get("worker-0"); there {
			t.Fatal("the view without the endpoint still has the member")
		}
		again := n.join("worker-0", identity.RoleWorker)
		offer(t, again, echo(2000))
		settle(2 * time.Second)
		got := endpoints(relay)
		if len(got) != 1 || got[0].Address != "127.0.0.1:2000" || got[0].Epoch != again.member.Epoch || got[0].Epoch == worker.member.Epoch {
			t.Fatalf("after the restart: %+v, want the new life's endpoint", got)
		}
		settle(25 * time.Hour)
		n.kill("worker-0")
		n.detect("worker-0")
		settle(25 * time.Hour)
		if relay.catalogue.View().known("echo") {
			t.Fatal("a service without endpoints for 25 h is still known")
		}
	})
}

func TestWithdrawnNeverReturns(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		stale, err := Record{NodeID: "worker-0", Epoch: worker.member.Epoch, Sequence: 1, Services: echo(1000)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		worker.catalogue.Offer(nil)
		settle(2 * time.Second)
		if len(endpoints(relay)) != 0 {
			t.Fatal("the withdrawn endpoint is still there")
		}
		replay := func(when string) {
			relay.hear(append([]byte{kindRecord}, stale...))
			settle(time.Minute)
			if len(endpoints(relay)) != 0 {
				t.Fatalf("the withdrawn endpoint is back %s", when)
			}
		}
		replay("while its worker lives")
		n.kill("worker-0") // and its record leaves the store, which keeps a floor
		n.detect("worker-0")
		settle(15 * time.Minute)
		n.mu.Lock()
		n.members["worker-0"] = worker.member
		n.publish()
		n.mu.Unlock()
		settle(time.Second)
		replay("after its record was forgotten")
	})
}

func TestDrainingIsSeenAndStays(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		worker.catalogue.Drain()
		if err := worker.catalogue.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		offer(t, worker, echo(1001))
		settle(3 * time.Second)
		got := endpoints(relay)
		if len(got) != 1 || got[0].State != Draining || got[0].Address != "127.0.0.1:1001" {
			t.Fatalf("got %+v, want one draining endpoint at port 1001", got)
		}
	})
}

func TestAtMostOnePublicationASecondAndTheLatestWins(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		settle(time.Second)
		for i := range 50 { // for five seconds
			offer(t, worker, echo(1000+i))
			settle(100 * time.Millisecond)
		}
		settle(3 * time.Second)
		if got := worker.catalogue.own.sequence; got < 5 || got > 6 {
			t.Errorf("%d publications in five seconds, want 5 or 6", got)
		}
		if got := endpoints(relay); len(got) != 1 || got[0].Address != "127.0.0.1:1049" {
			t.Errorf("got %+v, want the last offer", got)
		}
		before := worker.catalogue.own.sequence
		offer(t, worker, echo(1049))
		settle(3 * time.Second)
		if worker.catalogue.own.sequence != before {
			t.Error("the same offer was published again")
		}
	})
}

func TestARecordInOurNameIsAnsweredWithAHigherSequence(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		forged, err := Record{NodeID: "worker-0", Epoch: worker.member.Epoch, Sequence: 70, Services: echo(666)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		relay.hear(append([]byte{kindRecord}, forged...))
		settle(10 * time.Second)
		if got := endpoints(relay); len(got) != 1 || got[0].Address != "127.0.0.1:1000" {
			t.Fatalf("got %+v, want the worker's own record", got)
		}
		if got := worker.catalogue.own.sequence; got != 71 {
			t.Errorf("sequence %d, want 71", got)
		}
		if worker.count("records_received_total", "foreign") == 0 {
			t.Error("the forged record was not counted")
		}
	})
}

func TestALargeRecordIsFetched(t *testing.T) {
	large := func(c *Config) { c.Rules.MaxServicesPerRecord = MaxServices }
	bubble(t, 0.2, func(t *testing.T, n *network) {
		relays := []*node{n.joinWith("relay-0", identity.RoleRelay, large), n.joinWith("relay-1", identity.RoleRelay, large)}
		worker := n.joinWith("worker-0", identity.RoleWorker, large)
		settle(2 * time.Minute) // until no exchange is due that could carry it first
		var services []Service
		for i := range MaxServices {
			services = append(services, Service{Name: fmt.Sprintf("service-%d", i), Address: "127.0.0.1:1000", Tags: []string{strings.Repeat("x", 40)}})
		}
		offer(t, worker, services)
		settle(5 * time.Second)
		for _, r := range relays {
			if got := r.catalogue.View().EndpointCount(); got != MaxServices {
				t.Errorf("%s sees %d endpoints, want %d", r.member.ID, got, MaxServices)
			}
		}
		if relays[0].count("exchanges_total", resultFetched)+relays[1].count("exchanges_total", resultFetched) == 0 {
			t.Error("nothing was fetched")
		}
	})
}

func TestAnIdleExchangeIsAFewDozenBytes(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		offer(t, n.join("worker-0", identity.RoleWorker), echo(1000))
		settle(5 * time.Minute)
		before, same := relay.count("exchange_bytes_total", "sent"), relay.count("exchanges_total", resultSame)
		settle(10 * time.Minute)
		sent, exchanges := relay.count("exchange_bytes_total", "sent")-before, relay.count("exchanges_total", resultSame)-same
		if exchanges < 20 || sent/exchanges > 64 {
			t.Fatalf("%v bytes in %v exchanges, want at least 20 of at most 64 bytes", sent, exchanges)
		}
	})
}

func TestBadGossipIsDroppedAndChangesNothing(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		before := relay.catalogue.View()

		record := func(r Record) []byte {
			raw, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return append([]byte{kindRecord}, raw...)
		}
		epoch := worker.member.Epoch
		for reason, payload := range map[string][]byte{
			"invalid_malformed":    {kindRecord, 0x95, 1},
			"invalid_format":       {kindRecord, 0x95, 2, 0xa1, 'w', 1, 1, 0x90},
			"invalid_services":     append([]byte{kindRecord, 0x95, 1, 0xa1, 'w', 1, 1, 0xdd, 0x00, 0x0f, 0x42, 0x40}, make([]byte, 2000)...),
			"invalid_future_epoch": record(Record{NodeID: "worker-0", Epoch: uint64(time.Now().Add(time.Hour).UnixMilli()), Sequence: 9}),
			"applied":              record(Record{NodeID: "worker-0", Epoch: epoch + 1, Sequence: 9, Services: echo(666)}),
		} {
			was := relay.count("records_received_total", reason)
			relay.hear(payload)
			settle(time.Second)
			if relay.count("records_received_total", reason) <= was {
				t.Errorf("not counted as %s", reason)
			}
		}
		if after := relay.catalogue.View(); after.Checksum() != before.Checksum() || after.Endpoints("echo").count != 1 {
			t.Fatalf("the view has changed: %+v", after.Endpoints("echo"))
		}
	})
}

func TestASlowWatcherGetsTheNewestView(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		slow := relay.catalogue.Watch(n.ctx)
		for i := range 5 {
			offer(t, n.join(fmt.Sprintf("worker-%d", i), identity.RoleWorker), echo(1000))
			settle(time.Second)
		}
		settle(2 * time.Second)
		if got := <-slow; got != relay.catalogue.View() || got.Endpoints("echo").count != 5 {
			t.Fatalf("the slow watcher got view %d with %d endpoints", got.version, got.Endpoints("echo").count)
		}
	})
}

func TestOnlyWorkersOffer(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		if err := relay.catalogue.Offer(echo(1000)); err == nil || !strings.Contains(err.Error(), "only workers") {
			t.Fatalf("a relay's offer: %v", err)
		}
		other := n.join("relay-1", identity.RoleRelay)
		raw, _ := Record{NodeID: "relay-0", Epoch: relay.member.Epoch, Sequence: 1, Services: echo(1)}.Encode()
		other.hear(append([]byte{kindRecord}, raw...))
		settle(time.Second)
		if len(endpoints(other)) != 0 {
			t.Fatal("a relay's record is visible")
		}
	})
}

func TestEndpointsAreInRingOrder(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		for i := range 12 {
			offer(t, n.join(fmt.Sprintf("worker-%d", i), identity.RoleWorker), echo(1000))
			if i%3 == 0 {
				settle(time.Second)
			}
		}
		settle(40 * time.Second)
		n.kill("worker-5")
		n.detect("worker-5")
		settle(time.Second)
		var ids []string
		for _, e := range endpoints(relay) {
			ids = append(ids, e.NodeID)
		}
		if len(ids) != 11 || !ring.IsOrdered("echo", ids) {
			t.Fatalf("%v are not the 11 workers in ring order", ids)
		}
	})
}

// Only consumers collect changes: the clock of the bubble stands still here.
func TestEachOfSeveralChangesInARowIsInAViewWithoutDelay(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		for i := range 3 {
			offer(t, n.join(fmt.Sprintf("worker-%d", i), identity.RoleWorker), echo(1))
		}
		settle(time.Minute)
		for i := range 3 {
			if offers := relay.catalogue.View().Endpoints("echo").count; offers != 3-i {
				t.Fatalf("%d endpoints after %d of 3 workers are gone", offers, i)
			}
			n.detect(fmt.Sprintf("worker-%d", i))
			synctest.Wait()
		}
	})
}
