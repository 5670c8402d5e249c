package advertise

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

var stated = Record{NodeID: "relay-1", Epoch: 1_800_000_000_000, Sequence: 7, Services: []Service{}, Relay: &RelayStatement{
	Traffic: []Traffic{{"a", 0}, {"b", MaxTrafficRate}},
	Plan:    PlanSettings{Version: 8, Author: "relay-2", Body: "strategy=rendezvous"},
}}

// statedBytes are the encoding of stated. Members of two builds read it during an upgrade: add
// fields only at the end of a list.
const statedBytes = "9501a772656c61792d31cf000001a3185c5000079" +
	"19da572656c6179a772656c61793a31000a0000a0c00000a0a0" + // what earlier releases read
	"949292a1610092a162ce0100000008a772656c61792d32b3" + "73747261746567793d72656e64657a766f7573"

func mustEncode(t tester, r Record) []byte {
	t.Helper()
	raw, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAStatementSurvivesItsEncodingWhichStaysTheSame(t *testing.T) {
	raw := mustEncode(t, stated)
	if got := hex.EncodeToString(raw); got != statedBytes {
		t.Errorf("encoded as\n%s, want\n%s", got, statedBytes)
	}
	got, _, err := decodeRecord(raw)
	if err != nil || !reflect.DeepEqual(got, stated) {
		t.Errorf("got %+v, %v", got, err)
	}
	empty := Record{NodeID: "r", Relay: &RelayStatement{}}
	if got, _, err := decodeRecord(mustEncode(t, empty)); err != nil || !got.Relay.equal(empty.Relay) {
		t.Errorf("without content: got %+v, %v", got, err)
	}
}

// They verify the signature, read a service that is valid, and then refuse the record quietly
// because its member is no worker.
func TestEarlierReleasesReadARelaysRecordAsOneOfAWorker(t *testing.T) {
	raw := mustEncode(t, stated)
	signed := withSignature(statementOf(raw), wireSignature)
	_, part, err := decodeRecord(signed)
	if err != nil || !bytes.Equal(part.statement, statementOf(raw)) || !bytes.Equal(part.signature, wireSignature) {
		t.Fatalf("the signature does not cover the statement: % x, %v", part.statement, err)
	}
	cut := recordParts(raw, func(r []any) []any {
		services := r[4].([]any)
		services[0] = services[0].([]any)[:serviceFieldsKnown]
		return r
	})
	got, _, err := decodeRecord(cut)
	if err != nil || len(got.Services) != 1 || got.Relay != nil {
		t.Errorf("read as %+v, %v: want one service", got, err)
	}
}

func TestFieldsOfLaterBuildsInAStatementAreSkipped(t *testing.T) {
	later := recordParts(mustEncode(t, stated), func(r []any) []any {
		service := r[4].([]any)[0].([]any)
		statement := service[serviceFieldsKnown].([]any)
		traffic := statement[0].([]any)
		traffic[0] = append(traffic[0].([]any), "later")
		service[serviceFieldsKnown] = append(statement, map[string]any{"later": 1})
		r[4] = []any{append(service, []any{"later"})}
		return r
	})
	if got, _, err := decodeRecord(later); err != nil || !reflect.DeepEqual(got, stated) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestInvalidStatementsAreRefusedOnBothSides(t *testing.T) {
	for _, test := range []struct {
		reason string
		s      RelayStatement
	}{
		{"traffic", RelayStatement{Traffic: []Traffic{{"", 1}}}},
		{"traffic", RelayStatement{Traffic: []Traffic{{"a/b", 1}}}},
		{"traffic", RelayStatement{Traffic: []Traffic{{strings.Repeat("a", 64), 1}}}},
		{"traffic", RelayStatement{Traffic: []Traffic{{"a", -1}}}},
		{"traffic", RelayStatement{Traffic: []Traffic{{"a", MaxTrafficRate + 1}}}},
		{"traffic", RelayStatement{Traffic: []Traffic{{"a", 1}, {"a", 2}}}},
		{"traffic", RelayStatement{Traffic: slices.Repeat([]Traffic{{"a", 1}}, MaxTraffic+1)}},
		{"plan", RelayStatement{Plan: PlanSettings{Version: 1, Body: strings.Repeat("b", MaxPlanBody+1)}}},
		{"plan", RelayStatement{Plan: PlanSettings{Version: 1, Body: "a\x1b[2J"}}},
		{"plan", RelayStatement{Plan: PlanSettings{Version: 1, Author: strings.Repeat("a", MaxNodeIDBytes+1)}}},
		{"plan", RelayStatement{Plan: PlanSettings{Version: 1, Author: "\xff"}}},
	} {
		r := Record{NodeID: "r", Sequence: 1, Relay: &test.s}
		if _, err := r.Encode(); outcomeOf(err) != outcome("invalid_"+test.reason) || err == nil {
			t.Errorf("%+v: %v, want a refusal of its %s", test.s, err, test.reason)
		}
		raw, err := encode(wireRecord{recordFormat, "r", 1, 1, test.s.wire()})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := decodeRecord(raw); err == nil || !slices.Contains(recordReasons, strings.TrimPrefix(string(outcomeOf(err)), "invalid_")) {
			t.Errorf("%s: the network's record %+v was accepted (%v)", test.reason, got.Relay, err)
		}
	}
	both := Record{NodeID: "r", Services: echo(1), Relay: &RelayStatement{}}
	if _, err := both.Encode(); outcomeOf(err) != "invalid_services" {
		t.Errorf("services beside a statement: %v", err)
	}
	mixed := recordParts(mustEncode(t, stated), func(r []any) []any {
		services := r[4].([]any)
		r[4] = append(services, services[0])
		return r
	})
	if got, _, err := decodeRecord(mixed); err == nil {
		t.Errorf("two statements were accepted: %+v", got)
	}
}

func TestOnlyRelaysStateAndOnlyWorkersOffer(t *testing.T) {
	state := mustEncode(t, Record{NodeID: "a", Epoch: 1, Sequence: 1, Relay: &RelayStatement{}})
	withdrawn := mustEncode(t, Record{NodeID: "a", Epoch: 1, Sequence: 1})
	for _, role := range []identity.Role{identity.RoleRelay, identity.RoleGate, identity.RoleObserver, identity.RoleWorker} {
		alive := membership.NewSnapshot(1, "", []membership.Member{{ID: "a", Epoch: 1, Role: role}})
		for _, test := range []struct {
			raw []byte
			by  identity.Role
		}{{state, identity.RoleRelay}, {withdrawn, identity.RoleWorker}} {
			s := newStore(storeConfig{})
			s.setMembers(alive, start)
			if _, result, err := s.merge(test.raw, start); (result == applied) != (role == test.by) || (result == wrongRole) != (err != nil) || (err == nil) != (role == test.by) {
				t.Errorf("a record for %s, by a %s: %s, %v", test.by, role, result, err)
			}
			early := newStore(storeConfig{}) // the record before the member
			_, _, _ = early.merge(test.raw, start)
			early.setMembers(alive, start)
			if e, _ := early.visible("a"); (e != nil) != (role == test.by) {
				t.Errorf("a record for %s, by a %s that appears later: visible %v", test.by, role, e != nil)
			}
		}
	}
}

func TestTheSummariesAreThoseOfTheLiveWorkersAndRelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(storeConfig{maxOrphans: 3, maxFloors: 2})
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			var members []membership.Member
			for _, id := range []string{"a", "b", "c"} {
				if role := rapid.SampledFrom([]identity.Role{"", identity.RoleWorker, identity.RoleRelay, identity.RoleGate}).Draw(t, id); role != "" {
					members = append(members, membership.Member{ID: id, Epoch: rapid.Uint64Range(1, 2).Draw(t, "epoch"), Role: role})
				}
			}
			s.setMembers(membership.NewSnapshot(1, "", members), start)
			r := Record{NodeID: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"), Epoch: rapid.Uint64Range(1, 2).Draw(t, "epoch"), Sequence: rapid.Uint64Range(1, 3).Draw(t, "sequence")}
			if rapid.Bool().Draw(t, "of a relay") {
				r.Relay = &RelayStatement{}
			}
			_, _, _ = s.merge(mustEncode(t, r), start)
			var workers, relays uint64
			for _, m := range members {
				e := s.entries[instance{m.ID, m.Epoch}]
				switch {
				case e == nil:
				case m.Role == identity.RoleWorker && !e.record.Relay:
					workers ^= e.mix()
				case m.Role == identity.RoleRelay && e.record.Relay:
					relays ^= e.mix()
				}
			}
			if s.root != workers || s.relays.root != relays {
				t.Fatalf("roots %x of workers and %x of relays, the records make %x and %x", s.root, s.relays.root, workers, relays)
			}
		}
	})
}

func says(t *testing.T, p *node, s RelayStatement) {
	t.Helper()
	if err := p.catalogue.State(s); err != nil {
		t.Fatal(err)
	}
}

func TestWhatARelayStatesIsSeenByEveryMemberUntilItIsGone(t *testing.T) {
	for _, loss := range []float64{0, 1} { // with loss 1 only exchanges carry it
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			bubble(t, loss, func(t *testing.T, n *network) {
				author, reader, worker := n.join("relay-0", identity.RoleRelay), n.join("relay-1", identity.RoleRelay), n.join("worker-0", identity.RoleWorker)
				first := RelayStatement{Traffic: []Traffic{{"b", 2}, {"a", 1}}, Plan: PlanSettings{Version: 3, Body: "x"}}
				says(t, author, first)
				says(t, reader, RelayStatement{})
				settle(3 * time.Minute)
				sum := reader.catalogue.View().Checksum()
				for _, p := range []*node{author, reader, worker} {
					got := p.catalogue.View().Relays()
					if s := got.Of("relay-0"); got.Len() != 2 || s == nil || s.Plan != first.Plan || !slices.Equal(s.Traffic, []Traffic{{"a", 1}, {"b", 2}}) {
						t.Fatalf("%s sees %+v", p.member.ID, maps.Collect(got.All()))
					}
				}
				before := reader.catalogue.View()
				offer(t, worker, echo(1000))
				settle(3 * time.Minute)
				after := reader.catalogue.View()
				if after.EndpointCount() != 1 || after.Relays() != before.Relays() || after.Checksum() == sum {
					t.Errorf("after a change of a worker: %d endpoints, relays changed: %v", after.EndpointCount(), after.Relays() != before.Relays())
				}
				says(t, author, RelayStatement{Traffic: []Traffic{{"a", 5}}})
				settle(3 * time.Minute)
				last := reader.catalogue.View()
				if s := last.Relays().Of("relay-0"); s == nil || s.Traffic[0].Rate != 5 || last.Relays() == after.Relays() || last.Relays().Of("relay-1") != after.Relays().Of("relay-1") {
					t.Errorf("after its change: %+v", s)
				}
				if last.Checksum() != after.Checksum() {
					t.Error("the checksum, which earlier releases compare, covers statements of relays")
				}
				n.kill("relay-0")
				n.detect("relay-0")
				settle(time.Second)
				if got := reader.catalogue.View().Relays(); got.Of("relay-0") != nil || got.Len() != 1 {
					t.Errorf("after its death: %+v", maps.Collect(got.All()))
				}
			})
		})
	}
}

func TestARelayPublishesAtMostOnceASecondAndOnlyChanges(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		for i := range 40 {
			says(t, relay, RelayStatement{Traffic: []Traffic{{"a", int32(i)}}})
			settle(100 * time.Millisecond)
		}
		settle(time.Minute)
		published := sequenceOf(t, relay)
		if published < 4 || published > 6 {
			t.Errorf("%d publications in four seconds of changes, want one a second", published)
		}
		says(t, relay, RelayStatement{Traffic: []Traffic{{"a", 39}}})
		settle(time.Minute)
		if got := sequenceOf(t, relay); got != published {
			t.Errorf("published %d times more without a change", got-published)
		}
	})
}

func TestAStatementOfAMemberThatIsNoRelayIsRefusedAndNotPublished(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		worker := n.join("worker-0", identity.RoleWorker)
		settle(time.Second)
		if err := worker.catalogue.State(RelayStatement{}); err == nil || !strings.Contains(err.Error(), "only relays") {
			t.Errorf("a worker may state: %v", err)
		}
		relay := n.join("relay-0", identity.RoleRelay)
		settle(time.Second)
		relay.hear(gossiped(mustEncode(t, Record{NodeID: "worker-0", Epoch: worker.member.Epoch, Sequence: 9, Relay: &RelayStatement{Plan: PlanSettings{Version: 9}}})))
		settle(time.Second)
		if got := relay.count("records_received_total", string(wrongRole)); got != 1 || relay.catalogue.View().Relays().Len() != 0 {
			t.Errorf("%v records of the wrong role counted, want 1", got)
		}
	})
}

// A member of an earlier release would refuse every record of a relay in every exchange.
func TestExchangesWithMembersOfEarlierReleasesLeaveOutRelays(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay, worker := n.join("relay-0", identity.RoleRelay), n.join("worker-0", identity.RoleWorker)
		says(t, relay, RelayStatement{Traffic: []Traffic{{"a", 1}}})
		offer(t, worker, echo(1000))
		settle(10 * time.Second)
		root := relay.catalogue.View().Checksum()
		for _, test := range []struct {
			hello []byte
			want  frameKind
		}{
			{hello(root), frameSame},
			{append(hello(root), hello(1)...), frameDigest},
			{hello(1), frameDigest},
		} {
			settle(time.Second) // the end of the exchange before
			conn, err := worker.OpenStream(t.Context(), "relay-0", streamProtocol)
			if err != nil {
				t.Fatal(err)
			}
			f := speak(t, conn)
			if err := f.send(t.Context(), frameHello, test.hello); err != nil {
				t.Fatal(err)
			}
			kind, b, err := f.receive(maxFrameBytes)
			if err != nil || kind != test.want {
				t.Fatalf("hello of %d bytes: answered by %d, %v, want %d", len(test.hello), kind, err, test.want)
			}
			if kind == frameSame {
				_ = conn.Close()
				continue
			}
			if d, err := decodeDigest(b); err != nil || d.relays != (len(test.hello) > 8) {
				t.Errorf("hello of %d bytes: the digest covers relays: %v, %v", len(test.hello), d.relays, err)
			}
			var everything bitmap
			for i := range buckets {
				everything.set(i)
			}
			if err := f.sendList(t.Context(), everything, nil); err != nil {
				t.Fatal(err)
			}
			ids := []string{}
			for kind != frameEnd {
				if kind, b, err = f.receive(maxFrameBytes); err != nil {
					t.Fatal(err)
				}
				if kind == frameRecords {
					raws, _ := decodeRecords(b)
					for _, raw := range raws {
						r, _, _ := decodeRecord(raw)
						ids = append(ids, r.NodeID)
					}
				}
			}
			_ = conn.Close()
			want := []string{"worker-0"}
			if len(test.hello) > 8 {
				want = []string{"relay-0", "worker-0"}
			}
			if slices.Sort(ids); !slices.Equal(ids, want) {
				t.Errorf("hello of %d bytes: sent the records of %v, want %v", len(test.hello), ids, want)
			}
		}
	})
}

func TestAWorkerDoesNotFetchTheLargeStatementOfARelay(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay, other, worker := n.join("relay-0", identity.RoleRelay), n.join("relay-1", identity.RoleRelay), n.join("worker-0", identity.RoleWorker)
		settle(10 * time.Second)
		says(t, relay, RelayStatement{Plan: PlanSettings{Version: 1, Body: strings.Repeat("x", 2*maxBroadcast)}})
		settle(5 * time.Second)
		if other.catalogue.View().Relays().Len() != 1 {
			t.Error("the other relay does not see it")
		}
		if got := worker.count("exchanges_total", resultFetched); got != 0 || worker.count("records_received_total", string(hinted)) == 0 {
			t.Errorf("the worker fetched %v times", got)
		}
	})
}

func TestAnOwnerThatIsBusyIsAskedAgainBeforeOthers(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		owner, reader := n.join("relay-0", identity.RoleRelay), n.join("relay-1", identity.RoleRelay)
		mutes := make([]*node, 6)
		for i := range mutes {
			mutes[i] = n.join(fmt.Sprint("mute-", i), identity.RoleRelay)
		}
		settle(time.Minute)
		n.mu.Lock()
		for _, mute := range mutes { // a member that asks one of them waits in vain for seconds
			mute.serve = func(_ context.Context, _ membership.Peer, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
		}
		serve, busy := owner.serve, 2
		owner.serve = func(ctx context.Context, peer membership.Peer, conn net.Conn) {
			if peer.ID == reader.member.ID && busy > 0 {
				busy--
				f := owner.catalogue.newFrames(inward, peer, conn)
				_, _, _ = f.receive(maxOpeningBytes)
				_ = f.send(ctx, frameBusy, nil)
				return
			}
			serve(ctx, peer, conn)
		}
		n.mu.Unlock()
		says(t, owner, RelayStatement{Plan: PlanSettings{Version: 1, Body: strings.Repeat("x", 2*maxBroadcast)}})
		heard := func() bool { return reader.count("records_received_total", string(hinted)) > 0 }
		for began := time.Now(); !heard() && time.Since(began) < time.Minute; {
			settle(10 * time.Millisecond)
		}
		settle(500 * time.Millisecond)
		if reader.catalogue.View().Relays().Len() == 0 {
			t.Errorf("half a second after the hint, the reader has no record; the owner would be busy %d more times", busy)
		}
	})
}
