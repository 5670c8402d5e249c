package trust

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// boot is memberlist's message about another boot of a member.
func (m *guarded) boot(t testing.TB, epoch uint64, incarnation uint32) []byte {
	return m.alive(t, func(d *gossip.Metadata, a *gossip.Alive) {
		d.Epoch, a.Node, a.Incarnation = epoch, gossip.InstanceName(m.who.Node, epoch), incarnation
	})
}

// deaths are the messages for memberlist that end an instance.
func (m *guarded) deaths(t testing.TB) (ended []gossip.Doubt) {
	t.Helper()
	for _, message := range m.delivered {
		if message[0] != gossip.KindDead {
			continue
		}
		var d gossip.Doubt
		if err := gossip.Decode(message[1:], &d); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, d)
	}
	return ended
}

func (m *guarded) unprovenAs(kind string) int {
	return int(testutil.ToFloat64(m.cfg.Unproven.WithLabelValues(kind)))
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
			name := gossip.InstanceName("n", epoch)
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
			kind, _ := p.admit(gossip.Metadata{ID: "n", Epoch: epoch}, now)
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
					ending[gossip.InstanceName("n", want[0].epoch)] = true
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
			to.Receive(by.wrapped(t, by.boot(t, by.epoch+n, incarnation), to.addr), by.addr)
		}
		admit(0, 1)
		admit(0, 7)
		admit(1, 1)
		if got := to.deaths(t); len(got) != 0 {
			t.Fatalf("two instances end %v", got)
		}
		admit(2, 1)
		first := gossip.Doubt{Incarnation: 7, Node: gossip.InstanceName("by", by.epoch), From: to.self}
		if got := to.deaths(t); !slices.Equal(got, []gossip.Doubt{first}) {
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
		to.Sweep()
		if got := to.deaths(t); !slices.Equal(got, []gossip.Doubt{first}) {
			t.Errorf("repeated: %v", got)
		}
		to.delivered = nil
		to.RecordGone(first.Node, true)
		to.Sweep()
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
				to.Receive(by.wrapped(t, by.boot(t, by.epoch+boots, 1), to.addr), by.addr)
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
		to.Receive(other.wrapped(t, other.alive(t, nil), to.addr), other.addr)
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
		to.Receive(by.wrapped(t, by.alive(t, func(d *gossip.Metadata, a *gossip.Alive) {
			a.Port = 1000 + port
			d.GossipAddr = gossip.AddrPort(a.Addr, a.Port)
		}), to.addr), by.addr)
	}
	if len(to.proofs.addrs) != 1 || !to.proofs.gossipsAt("10.0.0.1:1049") {
		t.Errorf("the addresses of one instance: %v", to.proofs.addrs)
	}
}

func TestHandshakesOfOneCertificateTakeNoSessionOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		to := w.member("to", func(s *setup) { s.MaxMembers = 10 })
		thief, honest := w.member("thief", nil), w.member("honest", nil)
		key := identity.KeyID(thief.cfg.Identity.Chain()[0])
		for n := range uint64(100) {
			time.Sleep(time.Second)
			if err := to.Certified(thief.cfg.Identity.Chain(), thief.epoch+n, 1); err != nil {
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
		to.Sweep()
		if len(to.sessions)+len(to.epochs) > 0 {
			t.Errorf("left over: %d sessions of %d certificates", len(to.sessions), len(to.epochs))
		}
	})
}

func TestNoticesOfOneNodeTakeNoPlaceOfAnother(t *testing.T) {
	to := newWire(t).member("to", func(s *setup) { s.MaxMembers = 10 })
	for epoch := range uint64(100) {
		to.RecordLeave("thief", epoch)
	}
	to.RecordLeave("thief", 99) // again
	to.RecordLeave("honest", 1)
	for instance, left := range map[string]bool{"thief.97": false, "thief.98": true, "thief.99": true, "honest.1": true, "honest.2": false} {
		if got := to.HasLeft(instance); got != left {
			t.Errorf("%s has left: %v", instance, got)
		}
	}
	for n := range 100 {
		to.RecordLeave(fmt.Sprint("n", n), 1)
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
		if _, err := to.proofs.learn(m.cfg.Identity.Chain()); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range w.guards {
		key := identity.KeyID(m.cfg.Identity.Chain()[0])
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
	answer := to.sizeOf(answerOverhead + len(appendChain(nil, to.cfg.Identity.Chain())))
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
		seed.Receive(joiner.wrapped(t, joiner.alive(t, nil), seed.addr), joiner.addr) // the exchange of a join proves it
		const members = 1000
		for i := range members {
			m := w.member(fmt.Sprint("m", i), nil)
			if _, err := seed.proofs.learn(m.cfg.Identity.Chain()); err != nil {
				t.Fatal(err)
			}
			joiner.request(identity.KeyID(m.cfg.Identity.Chain()[0]), requestSource{from: seed.addr})
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
		to.Receive(member.wrapped(t, member.alive(t, nil), to.addr), member.addr) // proves its address
		key := identity.KeyID(to.cfg.Identity.Chain()[0])
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
				time.Sleep(unpaidInterval)
			}
		}
		time.Sleep(time.Nanosecond)
		to.Sweep()
		if len(to.unpaid) > 0 {
			t.Errorf("left over: %v", to.unpaid)
		}
	})
}

func TestAMessageThatIsTooLongDoesNotWaitForACertificate(t *testing.T) {
	w := newWire(t)
	by, unknown, to := w.member("by", nil), w.member("unknown", nil), w.member("to", nil)
	w.acquainted(by, to)
	for long, parked := range map[int]int{60_000: 0, 6: 1} {
		message := unknown.alive(t, func(_ *gossip.Metadata, a *gossip.Alive) { a.Vsn = make([]uint8, long) })
		to.Receive(by.wrapped(t, message, to.addr), by.addr)
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
		key := identity.KeyID(m.cfg.Identity.Chain()[0])
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
