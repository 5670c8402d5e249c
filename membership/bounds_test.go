package membership

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership/identity"
)

// boot is memberlist's message about another boot of a member.
func (m *guarded) boot(t testing.TB, epoch uint64, incarnation uint32) []byte {
	return m.alive(t, func(d *metadata, a *aliveMessage) {
		d.Epoch, a.Node, a.Incarnation = epoch, instanceName(m.who.Node, epoch), incarnation
	})
}

// deaths are the messages for memberlist that end an instance.
func (m *guarded) deaths(t testing.TB) (ended []doubtMessage) {
	t.Helper()
	for _, message := range m.delivered {
		if message[0] != messageDead {
			continue
		}
		var d doubtMessage
		if err := decodeMessage(message[1:], &d); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, d)
	}
	return ended
}

func (m *guarded) unprovenAs(kind string) int {
	return int(testutil.ToFloat64(m.cfg.unproven.WithLabelValues(kind)))
}

// The reference keeps the boots in a plain list.
func TestANodeHasTheInstancesOfItsLastTwoBoots(t *testing.T) {
	cfg := newWire(t).member("to", nil).cfg
	rapid.Check(t, func(t *rapid.T) {
		p, now := newProofs(cfg), time.Now()
		type known struct {
			epoch uint64
			gone  bool
		}
		var want []known
		ending := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Minute) // the rate is another promise
			epoch := uint64(rapid.IntRange(1, 8).Draw(t, "epoch"))
			name := instanceName("n", epoch)
			at := slices.IndexFunc(want, func(k known) bool { return k.epoch == epoch })
			if gone := rapid.Bool().Draw(t, "gone"); gone || at >= 0 {
				p.recordGone(name, gone)
				if at >= 0 {
					want[at].gone = gone
				}
				if gone {
					delete(ending, name)
				}
				continue
			}
			kind, _ := p.admit(metadata{ID: "n", Epoch: epoch}, now)
			if len(want) == 2 {
				victim := slices.IndexFunc(want, func(k known) bool { return k.gone })
				if victim < 0 && epoch < want[0].epoch {
					if kind != unprovenSuperseded {
						t.Fatalf("boot %d next to %v: %q", epoch, want, kind)
					}
					continue
				}
				if victim < 0 {
					victim = 0
					ending[instanceName("n", want[0].epoch)] = true
				}
				want = slices.Delete(want, victim, victim+1)
			}
			if kind != "" {
				t.Fatalf("boot %d is refused: %s", epoch, kind)
			}
			p.instances[name] = provenInstance{used: now}
			want = append(want, known{epoch: epoch})
			slices.SortFunc(want, func(a, b known) int { return cmp.Compare(a.epoch, b.epoch) })
			if len(p.instances) != len(want) || len(p.nodes["n"].epochs) != len(want) || len(p.instances) > instancesPerNode {
				t.Fatalf("%d instances and the boots %v, want %v", len(p.instances), p.nodes["n"].epochs, want)
			}
			if len(p.ending) != len(ending) {
				t.Fatalf("memberlist must end %v, want %v", p.ending, ending)
			}
		}
		for name, i := range p.instances {
			p.forget(name, i)
		}
		if len(p.nodes)+len(p.instances)+len(p.addrs) > 0 {
			t.Fatalf("left over: %d nodes, %d instances, %d addresses", len(p.nodes), len(p.instances), len(p.addrs))
		}
	})
}

func TestMemberlistEndsAnInstanceThatALaterBootDisplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, to := w.member("by", nil), w.member("to", nil)
		w.acquainted(by, to)
		admit := func(n uint64, incarnation uint32) {
			to.receive(by.wrapped(t, by.boot(t, by.epoch+n, incarnation), to.addr), by.addr)
		}
		admit(0, 1)
		admit(0, 7)
		admit(1, 1)
		if got := to.deaths(t); len(got) != 0 {
			t.Fatalf("two instances end %v", got)
		}
		admit(2, 1)
		first := doubtMessage{Incarnation: 7, Node: instanceName("by", by.epoch), From: to.self}
		if got := to.deaths(t); !slices.Equal(got, []doubtMessage{first}) {
			t.Fatalf("the third boot ends %v, want %v", got, first)
		}
		if n := to.unprovenAs(unprovenSuperseded); n != 1 {
			t.Errorf("%d displacements are counted", n)
		}
		// Late gossip does not bring it back, and is nothing for operators.
		to.delivered = nil
		admit(0, 9)
		if len(to.delivered) != 0 || to.unprovenAs(unprovenSuperseded) != 2 || len(to.proofs.list()) != 0 {
			t.Errorf("late gossip: %d delivered, listed %v", len(to.delivered), to.proofs.list())
		}
		// memberlist may lose the message: it is repeated until the instance is gone.
		to.sweep()
		if got := to.deaths(t); !slices.Equal(got, []doubtMessage{first}) {
			t.Errorf("repeated: %v", got)
		}
		to.delivered = nil
		to.proofs.recordGone(first.Node, true)
		to.sweep()
		if got := to.deaths(t); len(got) != 0 || len(to.proofs.ending) != 0 {
			t.Errorf("the instance is gone and ends again: %v", got)
		}
		// One that memberlist never knew is forgotten.
		admit(3, 1)
		time.Sleep(displacedFor + time.Second)
		to.proofs.sweep()
		if len(to.proofs.ending) != 0 {
			t.Errorf("kept: %v", to.proofs.ending)
		}
	})
}

func TestBootsOfANodeAreLimitedPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, other, to := w.member("by", nil), w.member("other", nil), w.member("to", nil)
		w.acquainted(by, to)
		w.acquainted(other, to)
		boots := uint64(0)
		flood := func(n int) (admitted int) {
			before := to.unprovenAs(unprovenBoots)
			for range n {
				boots++
				to.receive(by.wrapped(t, by.boot(t, by.epoch+boots, 1), to.addr), by.addr)
			}
			return n - (to.unprovenAs(unprovenBoots) - before)
		}
		if n := flood(1000); n != bootsAtOnce {
			t.Errorf("%d of 1,000 boots are admitted at a time, want %d", n, bootsAtOnce)
		}
		total := 0
		for range 60 {
			time.Sleep(time.Second)
			total += flood(20)
		}
		if total < bootsAMinute-1 || total > bootsAMinute+1 {
			t.Errorf("%d boots are admitted in the next minute, want %d", total, bootsAMinute)
		}
		if n := len(to.proofs.instances); n > instancesPerNode {
			t.Errorf("%d instances are kept", n)
		}
		if n := len(to.proofs.ending); n > bootsAtOnce+bootsAMinute {
			t.Errorf("%d ends are kept", n)
		}
		to.delivered = nil
		to.receive(other.wrapped(t, other.alive(t, nil), to.addr), other.addr)
		if len(to.delivered) != 1 {
			t.Error("another node is not admitted")
		}
		if list := to.proofs.list(); !strings.Contains(fmt.Sprint(list), "more than 60 times in a minute") {
			t.Errorf("listed: %v", list)
		}
	})
}

func TestAnAddressThatAMemberLeavesIsForgotten(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	for port := range uint16(50) {
		to.receive(by.wrapped(t, by.alive(t, func(d *metadata, a *aliveMessage) {
			a.Port = 1000 + port
			d.GossipAddr = addrPort(a.Addr, a.Port)
		}), to.addr), by.addr)
	}
	if len(to.proofs.addrs) != 1 || !to.proofs.gossipsAt("10.0.0.1:1049") {
		t.Errorf("the addresses of one instance: %v", to.proofs.addrs)
	}
}

func TestHandshakesOfOneCertificateTakeNoSessionOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		to := w.member("to", func(s *setup) { s.maxMembers = 10 })
		thief, honest := w.member("thief", nil), w.member("honest", nil)
		key := identity.KeyID(thief.cfg.source.Chain()[0])
		for n := range uint64(100) {
			time.Sleep(time.Second)
			if err := to.certified(thief.cfg.source.Chain(), thief.epoch+n, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			to.begin(sessionKey{key, thief.epoch}, n) // the first boot stays in use
		}
		if len(to.sessions) != sessionsPerCertificate || len(to.epochs[key]) != sessionsPerCertificate {
			t.Errorf("%d sessions, of the boots %v", len(to.sessions), to.epochs[key])
		}
		for _, epoch := range []uint64{thief.epoch, thief.epoch + 99} {
			if to.sessions[sessionKey{key, epoch}] == nil {
				t.Errorf("no session of boot %d is left", epoch-thief.epoch)
			}
		}
		if n := to.dropped(dropSessions); n != 98 {
			t.Errorf("%d displaced sessions are counted, want 98", n)
		}
		w.acquainted(honest, to)
		time.Sleep(keepProof + time.Second)
		to.sweep()
		if len(to.sessions)+len(to.epochs) > 0 {
			t.Errorf("left over: %d sessions of %d certificates", len(to.sessions), len(to.epochs))
		}
	})
}

func TestNoticesOfOneNodeTakeNoPlaceOfAnother(t *testing.T) {
	to := newWire(t).member("to", func(s *setup) { s.maxMembers = 10 })
	for epoch := range uint64(100) {
		to.recordLeave("thief", epoch)
	}
	to.recordLeave("thief", 99) // again
	to.recordLeave("honest", 1)
	for instance, left := range map[string]bool{"thief.97": false, "thief.98": true, "thief.99": true, "honest.1": true, "honest.2": false} {
		if got := to.hasLeft(instance); got != left {
			t.Errorf("%s has left: %v", instance, got)
		}
	}
	for n := range 100 {
		to.recordLeave(fmt.Sprint("n", n), 1)
	}
	if len(to.leaves) != 20 || to.dropped(dropTooMany) != 98+82 {
		t.Errorf("notices of %d nodes, %d dropped", len(to.leaves), to.dropped(dropTooMany))
	}
}

// The answers to a question are at most three times as long, whatever it asks for, except for one
// answer a second.
func TestAnswersAreNoLongerThanTheirQuestionPaysFor(t *testing.T) {
	w := newWire(t)
	to := w.member("to", nil)
	var keys [][]byte
	for i := range 8 {
		m := w.member(fmt.Sprint("m", i), nil)
		if _, err := to.proofs.learn(m.cfg.source.Chain()); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range w.guards {
		key := identity.KeyID(m.cfg.source.Chain()[0])
		keys = append(keys, key[:])
	}
	keys = append(keys, make([]byte, 8), []byte("unknown!"))
	to.unpaidAnswers.AllowN(time.Now(), 1)
	rapid.Check(t, func(t *rapid.T) {
		var question []byte
		asked := map[string]bool{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom(keys), 1, maxQuestion).Draw(t, "keys") {
			question = binary.BigEndian.AppendUint64(append(question, key...), rapid.Uint64().Draw(t, "nonce"))
			asked[string(key)] = true
		}
		to.sent = nil
		to.strangersAnswers.SetBurstAt(time.Now(), 1000)
		to.unpaidAnswers.SetBurst(0)
		reason := to.answer(question, "10.6.6.6:666")
		size := 0
		for _, packet := range to.sent {
			size += len(packet)
		}
		if limit := answersPerByte * to.sizeOf(1+len(question)); size > limit || len(to.sent) > len(asked) {
			t.Fatalf("%d answers of %d bytes to a question for %d certificates that pays for %d bytes", len(to.sent), size, len(asked), limit)
		}
		if reason != "" && reason != dropShort && reason != dropTooMany {
			t.Fatalf("refused: %s", reason)
		}
	})
}

func TestAQuestionPaysForItsAnswers(t *testing.T) {
	w := newWire(t)
	to := w.member("to", nil)
	answer := to.sizeOf(answerOverhead + len(appendChain(nil, to.cfg.source.Chain())))
	for _, asked := range []int{1, 2, 7, 40} {
		keys := 0
		for _, q := range to.padded(bytes.Repeat([]byte("certkey1nonce678"), asked)) {
			here := bytes.Count(q, []byte("certkey1"))
			keys += here
			if paid := answersPerByte * to.sizeOf(1+len(q)); paid < here*answer {
				t.Errorf("a question of %d bytes for %d certificates pays for %d bytes, they need %d", len(q), here, paid, here*answer)
			}
			if len(q) > 16*keysPerPacket {
				t.Errorf("a question of %d bytes is too long for earlier releases", len(q))
			}
		}
		if keys != asked {
			t.Errorf("%d keys of %d are asked for", keys, asked)
		}
	}
}

// A joiner asks for all members that it learned of.
func TestAJoinerGetsAllCertificatesAtTheFirstQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		joiner, seed := w.member("joiner", nil), w.member("seed", nil)
		w.acquainted(joiner, seed)
		seed.receive(joiner.wrapped(t, joiner.alive(t, nil), seed.addr), joiner.addr) // the exchange of a join proves it
		const members = 1000
		for i := range members {
			m := w.member(fmt.Sprint("m", i), nil)
			if _, err := seed.proofs.learn(m.cfg.source.Chain()); err != nil {
				t.Fatal(err)
			}
			joiner.request(identity.KeyID(m.cfg.source.Chain()[0]), requestSource{from: seed.addr})
		}
		rounds := 0
		for ; len(joiner.requested) > 0 && rounds < 100; rounds++ {
			next, _ := joiner.sendRequests()
			time.Sleep(min(next, 10*time.Millisecond))
			for key := range joiner.requested { // as release does for those that are known
				if _, err := joiner.proofs.certificate(key); err == nil {
					joiner.release(key)
				}
			}
		}
		if want := members / keysPerAddress; rounds > want+1 {
			t.Errorf("%d certificates took %d rounds, want %d: %d are missing", members, rounds, want, len(joiner.requested))
		}
		if n := seed.dropped(dropShort); n > 0 {
			t.Errorf("%d questions were too short", n)
		}
	})
}

// Earlier releases do not pad their questions.
func TestAQuestionThatIsTooShortGetsOneAnswerASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		member, to := w.member("member", nil), w.member("to", nil)
		w.acquainted(member, to)
		to.receive(member.wrapped(t, member.alive(t, nil), to.addr), member.addr) // proves its address
		key := identity.KeyID(to.cfg.source.Chain()[0])
		short := append(key[:], "nonce678"...)
		for _, from := range []string{member.addr, "10.6.6.6:666"} {
			for second := range 3 {
				to.sent = nil
				reasons := map[string]int{}
				for range 5 {
					reasons[to.answer(short, from)]++
				}
				if len(to.sent) != 1 || reasons[dropShort] != 4 {
					t.Errorf("%s, second %d: %d answers, %v", from, second, len(to.sent), reasons)
				}
				time.Sleep(unpaidInterval + time.Millisecond)
			}
		}
		to.sweep()
		if len(to.unpaid) > 0 {
			t.Errorf("left over: %v", to.unpaid)
		}
	})
}

func TestStreamsAndExchangesOfANodeAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchanges(t.Context(), 0, func() int { return 0 })
		var open []*place
		for range 20 {
			if p := x.open("thief"); p != nil {
				open = append(open, p)
			}
		}
		if len(open) != streamsPerNode {
			t.Fatalf("%d streams are open, want %d", len(open), streamsPerNode)
		}
		if !open[0].take(10) {
			t.Fatal("the first exchange is refused")
		}
		begun := time.Now()
		if open[1].take(10) || time.Since(begun) != exchangeWait {
			t.Errorf("a second exchange next to the first, after %v", time.Since(begun))
		}
		if p := x.open("honest"); p == nil || !p.take(10) {
			t.Error("the exchange of another node is refused")
		}
		go func() { time.Sleep(time.Second); open[0].close(); open[0].close() }()
		if begun = time.Now(); !open[2].take(10) || time.Since(begun) != time.Second {
			t.Errorf("the turn of a closed stream is not given on, after %v", time.Since(begun))
		}
		for _, p := range open {
			p.close()
		}
		// What was announced counts for a minute.
		p := x.open("thief")
		if p.take(x.announced()) {
			t.Error("more states than one minute allows")
		}
		p.close()
		time.Sleep(time.Minute)
		if p = x.open("thief"); !p.take(x.announced()) {
			t.Error("refused a minute later")
		}
		x.sweep()
		if p.close(); len(x.nodes) != 2 {
			t.Errorf("%d nodes are kept, want 2", len(x.nodes))
		}
		time.Sleep(time.Minute)
		if x.sweep(); len(x.nodes) != 1 {
			t.Errorf("%d nodes are kept, want the one with a stream", len(x.nodes))
		}
	})
}

func TestFourFullExchangesHaveRoomTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 20_000
		x := newExchanges(t.Context(), members, func() int { return members })
		var taken []*place
		for n := range 5 {
			p := x.open(fmt.Sprint("n", n))
			if p.take(members) {
				taken = append(taken, p)
			}
		}
		if len(taken) != fullExchanges {
			t.Fatalf("%d exchanges together, want %d", len(taken), fullExchanges)
		}
		go func() { time.Sleep(time.Second); taken[0].close() }()
		if !x.open("n5").take(members) {
			t.Error("the room of a closed exchange is not given on")
		}
		// A small fleet is not limited by it.
		x = newExchanges(t.Context(), members, func() int { return 1000 })
		for n := range 100 {
			if !x.open(fmt.Sprint("n", n)).take(1) {
				t.Fatalf("joiner %d of a fleet of 1,000 is refused", n)
			}
		}
		// An end of the node ends the waits.
		ctx, stop := context.WithCancel(t.Context())
		x = newExchanges(ctx, 0, func() int { return 0 })
		a, b := x.open("n"), x.open("n")
		a.take(1)
		stop()
		if begun := time.Now(); b.take(1) || time.Since(begun) > 0 {
			t.Errorf("waited %v after the end", time.Since(begun))
		}
	})
}

// received is what memberlist reads from a stream, by its own steps: a header, then as many states.
func received(passed []byte) (states []pushPullState, err error) {
	if len(passed) == 0 || passed[0] != messagePushPull {
		return nil, errors.New("no state exchange")
	}
	decoder := codec.NewDecoder(bytes.NewReader(passed[1:]), &codec.MsgpackHandle{})
	var header pushPullHeader
	if err := decoder.Decode(&header); err != nil {
		return nil, err
	}
	for range header.Nodes {
		var s pushPullState
		if err := decoder.Decode(&s); err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, nil
}

// full makes the metadata of a member as long as it may be.
func full(d *metadata, _ *aliveMessage) {
	d.Version = "1"
	body, _ := d.encode(maxSignature)
	d.Version = strings.Repeat("1", memberlist.MetaMaxSize-maxSignature-len(body)-2)
}

func (m *guarded) fullState(t testing.TB) pushPullState {
	t.Helper()
	var a aliveMessage
	if err := decodeMessage(m.alive(t, full)[1:], &a); err != nil {
		t.Fatal(err)
	}
	return pushPullState{Name: a.Node, Addr: a.Addr, Port: a.Port, Meta: a.Meta, Incarnation: 1, Vsn: a.Vsn}
}

// A relay that joins a fleet at the limit gets all members. Of those that have just died it needs
// only the ones that it knows.
func TestAnExchangeOfTheLargestFleetPasses(t *testing.T) {
	w := newWire(t)
	const members = 1500 // more than the least M
	by, to := w.member("by", nil), w.member("to", func(s *setup) { s.maxMembers = members })
	w.acquainted(by, to)
	var states, living []pushPullState
	for i := range members {
		m := w.member(fmt.Sprintf("m%d", i), nil)
		m.addr = fmt.Sprintf("10.1.%d.%d:7400", i/256, i%256)
		if _, err := to.proofs.learn(m.cfg.source.Chain()); err != nil {
			t.Fatal(err)
		}
		s := m.fullState(t)
		if len(s.Meta) < memberlist.MetaMaxSize-2 {
			t.Fatalf("metadata of %d bytes is not full", len(s.Meta))
		}
		dead := pushPullState{Name: fmt.Sprintf("d%d.1", i), Addr: s.Addr, Port: s.Port, Incarnation: 1, State: 2, Vsn: s.Vsn}
		states, living = append(states, s, dead), append(living, s)
	}
	raw := exchanged(t, to.header, states...)
	place := to.exchanges.open("by")
	passed, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.guard, by: announcer{"by", by.addr}, labelled: true, place: place})
	if want := exchanged(t, to.header, living...); err != nil || !bytes.Equal(passed, want) {
		t.Errorf("%d bytes, want %d: %v", len(passed), len(want), err)
	}
	if n := testutil.CollectAndCount(to.cfg.dropped); n == 0 || to.dropped(dropTooMany)+to.dropped(dropUnproven)+to.dropped(dropMetadata) > 0 {
		t.Error("states of an honest member are dropped")
	}
}

func TestAnExchangeKeepsNoMoreThanThereIs(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	own := by.fullState(t)
	long, longer := own, own
	long.Meta = make([]byte, memberlist.MetaMaxSize+1)
	longer.Meta = make([]byte, maxState)
	dead := func(n int, meta int) pushPullState {
		return pushPullState{Name: fmt.Sprintf("x%d.1", n), Addr: own.Addr, Port: 1, Meta: make([]byte, meta), Incarnation: 1, State: 2, Vsn: own.Vsn}
	}
	longName, longAddr, longVersions, longVersionsDead := dead(1, 0), dead(1, 0), own, dead(1, 0)
	longName.Name = "x." + strings.Repeat("0", 100) + "1"
	longAddr.Addr = make([]byte, 17)
	longVersions.Name, longVersions.Vsn = "x.1", make([]uint8, 7)
	longVersionsDead.Vsn = longVersions.Vsn
	var repeated, many []pushPullState
	for n := range 3000 {
		repeated = append(repeated, own)
		gone := dead(n, 400)
		gone.Name = own.Name // others are unknown
		many = append(many, gone)
	}
	for _, c := range []struct {
		name   string
		states []pushPullState
		kept   int
		reason string
		count  int
	}{
		{"one instance again and again", repeated, 1, dropTooMany, 2999},
		{"more than M that do not live", many, leastStates, dropTooMany, 3000 - leastStates},
		{"a living one with long metadata", []pushPullState{own, long}, 1, dropMetadata, 1},
		{"a dead one with long metadata", []pushPullState{own, dead(1, memberlist.MetaMaxSize+1)}, 1, dropMetadata, 1},
		{"names, addresses and versions that are too long", []pushPullState{own, longName, longAddr, longVersions, longVersionsDead}, 1, dropMessageFormat, 4},
		{"a state that no member sends", []pushPullState{own, longer}, -1, dropMessageFormat, 1},
		{"more than an exchange may announce", slices.Repeat([]pushPullState{dead(1, 0)}, 4*leastStates+1), -1, dropTooMany, 1},
	} {
		before := to.dropped(c.reason)
		passed, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(exchanged(t, nil, c.states...))}, guard: to.guard, by: announcer{"by", by.addr}})
		if got := to.dropped(c.reason) - before; got != c.count {
			t.Errorf("%s: %d counted as %s, want %d", c.name, got, c.reason, c.count)
		}
		if c.kept < 0 {
			if err == nil {
				t.Errorf("%s: the exchange passes", c.name)
			}
			continue
		}
		states, err := received(passed)
		if err != nil || len(states) != c.kept {
			t.Errorf("%s: memberlist reads %d states, want %d: %v", c.name, len(states), c.kept, err)
		}
		for _, s := range states {
			if s.State != stateAlive && len(s.Meta) > 0 {
				t.Errorf("%s: memberlist reads metadata of %d bytes, which it does not use", c.name, len(s.Meta))
			}
		}
	}
}

func TestAMessageThatIsTooLongDoesNotWaitForACertificate(t *testing.T) {
	w := newWire(t)
	by, unknown, to := w.member("by", nil), w.member("unknown", nil), w.member("to", nil)
	w.acquainted(by, to)
	for long, parked := range map[int]int{60_000: 0, 6: 1} {
		message := unknown.alive(t, func(_ *metadata, a *aliveMessage) { a.Vsn = make([]uint8, long) })
		to.receive(by.wrapped(t, message, to.addr), by.addr)
		if to.parked != parked {
			t.Errorf("with %d bytes of versions %d messages wait", long, to.parked)
		}
		for key, a := range to.requested {
			to.drop(key, a)
		}
	}
}

// FuzzQuestion asks a member for certificates: the answers are bounded by the question.
func FuzzQuestion(f *testing.F) {
	w := newWire(f)
	a, to := w.member("a", nil), w.member("to", nil)
	w.acquainted(a, to)
	for _, m := range []*guarded{a, to} {
		key := identity.KeyID(m.cfg.source.Chain()[0])
		f.Add(bytes.Repeat(append(key[:], "nonce678"...), 40))
		f.Add(bytes.Join(to.padded(append(key[:], "nonce678"...)), nil))
	}
	to.unpaidAnswers.SetBurst(0)
	f.Fuzz(func(t *testing.T, keys []byte) {
		to.sent = nil
		to.answer(keys, "10.6.6.6:666")
		size := 0
		for _, packet := range to.sent {
			size += len(packet)
		}
		if size > answersPerByte*to.sizeOf(1+len(keys)) {
			t.Fatalf("%d bytes of keys return %d bytes", len(keys), size)
		}
	})
}
