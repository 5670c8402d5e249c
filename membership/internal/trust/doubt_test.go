package trust

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// stated is memberlist's message about a member of this release, at an incarnation.
func (m *guarded) stated(t testing.TB, incarnation uint32, change func(*gossip.Metadata, *gossip.Alive)) []byte {
	t.Helper()
	return m.alive(t, func(d *gossip.Metadata, a *gossip.Alive) {
		d.Incarnation, a.Incarnation = incarnation, incarnation
		if change != nil {
			change(d, a)
		}
	})
}

// hears makes a member receive messages of another one, and returns what memberlist receives.
func (m *guarded) hears(t testing.TB, from *guarded, messages ...[]byte) (delivered [][]byte) {
	t.Helper()
	m.delivered = nil
	for _, one := range messages {
		m.Receive(from.wrapped(t, one, m.addr), from.addr)
	}
	return m.delivered
}

func suspicion(of *guarded, incarnation uint32) []byte {
	return gossip.Encode(gossip.KindSuspect, &gossip.Doubt{Incarnation: incarnation, Node: of.self, From: "accuser.1"})
}

func death(of *guarded, incarnation uint32) []byte {
	return gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: incarnation, Node: of.self, From: "accuser.1"})
}

// One packet a second with a doubt at the highest incarnation that was allowed to all removed any
// member: its answer was one above.
func TestADoubtCountsUpToTheIncarnationThatItsSubjectHasSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, subject, unknown, to := w.member("by", nil), w.member("subject", nil), w.member("unknown", nil), w.member("to", nil)
		for _, m := range []*guarded{by, subject, unknown} {
			w.acquainted(m, to)
		}
		if got := to.hears(t, by, suspicion(subject, 1), death(subject, 1), suspicion(unknown, 7)); len(got) != 0 {
			t.Errorf("a doubt about a member that is not known here: %x", got)
		}
		if got := to.hears(t, by, subject.stated(t, 7, nil)); len(got) != 1 {
			t.Fatal("the subject's announcement does not count")
		}
		limit := uint32(incarnationHeadStart)
		for _, c := range []struct {
			incarnation, counts uint32
		}{{0, 0}, {1, 1}, {7, 7}, {8, 7}, {7 + maxAhead, 7}, {8 + maxAhead, none}, {limit, none}, {1 << 31, none}, {1<<32 - 1, none}} {
			before := to.dropped(dropIncarnation)
			for _, doubt := range [][]byte{suspicion(subject, c.incarnation), death(subject, c.incarnation), compound(death(subject, c.incarnation))} {
				got := to.hears(t, by, doubt)
				if c.counts == none {
					if len(got) != 0 {
						t.Errorf("at %d memberlist receives %x", c.incarnation, got)
					}
					continue
				}
				want := suspicion(subject, c.counts)
				if doubt[0] == gossip.KindCompound {
					want = compound(want)
				}
				if len(got) != 1 || !bytes.Equal(got[0], want) {
					t.Errorf("at %d memberlist receives %x, want the suspicion %x", c.incarnation, got, want)
				}
			}
			if refused := to.dropped(dropIncarnation) - before; c.counts == none && refused != 3 {
				t.Errorf("at %d: %d refusals are counted, want 3", c.incarnation, refused)
			}
		}
		// The answer is above all that counts.
		if got := to.hears(t, subject, subject.stated(t, 8, nil)); len(got) != 1 {
			t.Error("the subject's answer does not count")
		}
		if got := to.hears(t, by, suspicion(subject, 8)); len(got) != 1 || !bytes.Equal(got[0], suspicion(subject, 8)) {
			t.Errorf("a doubt about the answer: %x", got)
		}
	})
}

// none is an incarnation that stands for a doubt that does not count.
const none = 1<<32 - 2

func TestAnOldStatementOfAMemberReplacesNoNewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, subject, to := w.member("by", nil), w.member("subject", nil), w.member("to", nil)
		w.acquainted(by, to)
		w.acquainted(subject, to)
		drained := subject.stated(t, 3, func(d *gossip.Metadata, _ *gossip.Alive) { d.Draining = true })
		undrained := subject.stated(t, 4, nil)
		if got := to.hears(t, subject, drained, undrained); len(got) != 2 {
			t.Fatalf("%d of the subject's statements count, want 2", len(got))
		}
		var recorded gossip.Alive
		if err := gossip.Decode(drained[1:], &recorded); err != nil {
			t.Fatal(err)
		}
		later := recorded
		later.Incarnation = 5
		unsigned := subject.alive(t, func(d *gossip.Metadata, a *gossip.Alive) { d.Draining = true; a.Incarnation = 5 })
		for _, c := range []struct {
			name   string
			replay []byte
			reason string
		}{
			{"as it was", drained, dropOld},
			{"at a later incarnation", gossip.Encode(gossip.KindAlive, &later), dropOld},
			{"without a signed incarnation", unsigned, dropOld},
		} {
			before := to.dropped(c.reason)
			state := gossip.State{State: gossip.StateAlive}
			var a gossip.Alive
			if err := gossip.Decode(c.replay[1:], &a); err != nil {
				t.Fatal(err)
			}
			state.Name, state.Addr, state.Port, state.Meta, state.Incarnation, state.Vsn = a.Node, a.Addr, a.Port, a.Meta, a.Incarnation, a.Vsn
			if got := to.hears(t, by, c.replay, compound(c.replay)); len(got) != 0 {
				t.Errorf("%s: memberlist receives %x", c.name, got)
			}
			raw := exchanged(t, nil, state)
			got, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.Guard, by: announcer{"by", by.addr}})
			if err != nil || !bytes.Equal(got, exchanged(t, nil)) {
				t.Errorf("%s, in an exchange: memberlist reads %x, %v", c.name, got, err)
			}
			if refused := to.dropped(c.reason) - before; refused != 3 {
				t.Errorf("%s: %d refusals are counted, want 3", c.name, refused)
			}
		}
		// Metadata of the newest statement counts at no other incarnation, also where only it is known.
		moved := undrained
		var a gossip.Alive
		if err := gossip.Decode(moved[1:], &a); err != nil {
			t.Fatal(err)
		}
		a.Incarnation = 9
		fresh := w.member("fresh", nil)
		w.acquainted(by, fresh)
		w.acquainted(subject, fresh)
		for _, m := range []*guarded{to, fresh} {
			if got := m.hears(t, by, gossip.Encode(gossip.KindAlive, &a)); len(got) != 0 || m.dropped(dropIncarnation) != 1 {
				t.Errorf("the newest metadata at another incarnation: %x, %d counted", got, m.dropped(dropIncarnation))
			}
		}
		if got := to.hears(t, by, undrained); len(got) != 1 {
			t.Error("the newest statement does not count any more")
		}
	})
}

func TestAMemberBeginsFewDoubtsAMinuteAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, honest, subject, to := w.member("by", nil), w.member("honest", nil), w.member("subject", nil), w.member("to", nil)
		for _, m := range []*guarded{by, honest, subject} {
			w.acquainted(m, to)
		}
		count := func(author *guarded, from, until uint32) (counted int) {
			for incarnation := from; incarnation < until; incarnation++ {
				to.hears(t, subject, subject.stated(t, incarnation, nil)) // its answer to the doubt before
				for range 3 {
					counted += len(to.hears(t, author, suspicion(subject, incarnation)))
				}
			}
			return counted
		}
		if got := count(by, 1, 20); got != 3*doubtsPerSubject {
			t.Errorf("%d doubts count, want %d, three times each", got, doubtsPerSubject)
		}
		if got := to.dropped(dropDoubts); got != 3*(19-doubtsPerSubject) {
			t.Errorf("%d are counted as denied", got)
		}
		if got := count(honest, 20, 22); got != 6 {
			t.Errorf("%d doubts of another member count, want 6", got)
		}
		if named := to.Doubters(); len(named) != 1 || named["by"] != 3*(19-doubtsPerSubject) {
			t.Errorf("named: %+v", named)
		}
		time.Sleep(61 * time.Second)
		if got := count(by, 30, 31); got != 3 {
			t.Errorf("a minute later %d count, want 3", got)
		}
		time.Sleep(keepProof)
		if to.Guard.Sweep(); len(to.Doubters()) != 0 {
			t.Errorf("still named: %+v", to.Doubters())
		}
	})
}

// All others may fail at the same time, and one member may be the first to report it.
func TestAMemberMayDoubtAllOthersInOneMinuteAndFewMore(t *testing.T) {
	var d doubts
	const members = 500
	begun := 0
	for n := range 3 * members {
		if d.begin(doubtKey{"author", fmt.Sprint(n)}, 1, members+spareDoubts) {
			begun++
		}
	}
	if begun != members+spareDoubts {
		t.Errorf("%d doubts about as many members begin, want %d", begun, members+spareDoubts)
	}
}

// A doubt that this node denies its author may count at other members, who wait for the answer.
func TestAMemberAnswersDoubtsAboutItselfWhateverTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, subject := w.member("by", nil), w.member("subject", nil)
		w.acquainted(by, subject)
		answers := 0
		for incarnation := uint32(1); incarnation < 40; incarnation++ {
			if _, err := subject.stateOwn(subject.template(t), incarnation); err != nil {
				t.Fatal(err)
			}
			if len(subject.hears(t, by, death(subject, incarnation))) == 1 {
				answers++ // memberlist does
			}
			select {
			case <-subject.doubted:
				answers++
			default:
			}
		}
		if answers != 39 {
			t.Errorf("%d of 39 doubts are answered", answers)
		}
		if got := subject.hears(t, by, death(subject, 1<<31), suspicion(subject, 1<<32-1)); len(got) != 0 {
			t.Errorf("memberlist would answer above %x", got)
		}
		if subject.hears(t, by, death(subject, 20)); len(subject.doubted) != 0 {
			t.Error("a doubt that was answered long ago is answered again")
		}
	})
}

// template is the member's metadata as its own memberlist has it.
func (m *guarded) template(t testing.TB) []byte {
	t.Helper()
	var a gossip.Alive
	if err := gossip.Decode(m.stated(t, unstated, nil)[1:], &a); err != nil {
		t.Fatal(err)
	}
	return append(a.Meta[:len(a.Meta)-signatureSize], make([]byte, signatureSize)...)
}

func TestWhatAMemberSaysAboutItselfLeavesSignedForItsIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		from, third, to := w.member("from", nil), w.member("third", nil), w.member("to", nil)
		w.acquainted(from, to)
		w.acquainted(third, to)
		template := from.template(t)
		own := func(incarnation uint32) gossip.Alive {
			var a gossip.Alive
			if err := gossip.Decode(from.alive(t, func(_ *gossip.Metadata, a *gossip.Alive) { a.Incarnation, a.Meta = incarnation, template })[1:], &a); err != nil {
				t.Fatal(err)
			}
			return a
		}
		user := []byte{gossip.KindUser, 1, 2}
		for incarnation := uint32(1); incarnation < 4; incarnation++ {
			a := own(incarnation)
			plain, other := gossip.Encode(gossip.KindAlive, &a), third.stated(t, incarnation, nil)
			want := from.stated(t, incarnation, nil)
			checked := append([]byte{gossip.KindChecksum, 0, 0, 0, 0}, plain...)
			for _, c := range []struct{ leaves, arrives []byte }{
				{plain, want}, {checked, want}, {other, other}, {user, user}, {compound(user, plain, other), compound(user, want, other)},
			} {
				to.delivered = nil
				packet, err := from.Wrap(append(bytes.Clone(from.header), c.leaves...), to.addr)
				if err != nil {
					t.Fatal(err)
				}
				to.Receive(packet, from.addr)
				if got := to.delivered; len(got) != 1 || !bytes.Equal(got[0], c.arrives) {
					t.Errorf("at %d arrives %x, want %x", incarnation, got, c.arrives)
				}
			}
			state := func(a gossip.Alive) gossip.State {
				return gossip.State{Name: a.Node, Addr: a.Addr, Port: a.Port, Meta: a.Meta, Incarnation: a.Incarnation, Vsn: a.Vsn}
			}
			var signed, neighbour gossip.Alive
			for message, into := range map[string]*gossip.Alive{string(want): &signed, string(other): &neighbour} {
				if err := gossip.Decode([]byte(message)[1:], into); err != nil {
					t.Fatal(err)
				}
			}
			var sent bytes.Buffer
			leaving := exchanged(t, nil, state(neighbour), state(a), state(neighbour))
			if n, err := (&inspected{Conn: sink{w: &sent}, guard: from.Guard}).Write(leaving); err != nil || n != len(leaving) {
				t.Fatal(n, err)
			}
			if arrives := exchanged(t, nil, state(neighbour), state(signed), state(neighbour)); !bytes.Equal(sent.Bytes(), arrives) {
				t.Errorf("in an exchange at %d leaves %x, want %x", incarnation, sent.Bytes(), arrives)
			}
		}
		// What was not signed for an incarnation counts nowhere, should it ever leave.
		a := own(1)
		a.Incarnation = unstated
		if reason := to.checkAlive(a, announcer{"from", from.addr}); reason == "" {
			t.Error("metadata without a signature counts")
		}
		// The echo of its own announcement contains nothing new for memberlist, and it must not
		// answer.
		if got := from.hears(t, to, from.stated(t, 3, nil), from.stated(t, 9, nil)); len(got) != 0 || from.dropped(dropIncarnation) != 1 {
			t.Errorf("an echo: %x, %d refused", got, from.dropped(dropIncarnation))
		}
	})
}

// sink is a connection that is only written to.
type sink struct {
	stream
	w io.Writer
}

func (s sink) Write(b []byte) (int, error) { return s.w.Write(b) }

// FuzzWhatMemberlistReads decodes what passes as memberlist does, from a stream, and holds it
// against what was signed: whatever a proven member sends, memberlist reads no incarnation
// and no metadata that its subject has not signed, and no death by the word of another.
func FuzzWhatMemberlistReads(f *testing.F) {
	w := newWire(f)
	by, subject, to := w.member("by", nil), w.member("subject", nil), w.member("to", nil)
	w.acquainted(by, to)
	w.acquainted(subject, to)
	statements := map[uint32][]byte{}
	for incarnation := uint32(1); incarnation < 6; incarnation++ {
		message := subject.stated(f, incarnation, func(d *gossip.Metadata, _ *gossip.Alive) { d.Draining = incarnation%2 == 0 })
		var a gossip.Alive
		if err := gossip.Decode(message[1:], &a); err != nil {
			f.Fatal(err)
		}
		statements[incarnation] = a.Meta
		if len(to.hears(f, subject, message)) != 1 {
			f.Fatal("the subject's statement does not count")
		}
		f.Add(message)
		f.Add(compound(suspicion(subject, incarnation), message, death(subject, incarnation)))
		a.Incarnation++
		f.Add(gossip.Encode(gossip.KindAlive, &a))
	}
	const newest = 5
	f.Add(suspicion(subject, 1<<31))
	f.Add(gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: 5, Node: subject.self, From: subject.self}))
	f.Add(append([]byte{gossip.KindChecksum, 0, 0, 0, 0}, death(subject, newest+maxAhead)...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		kept := to.inspect(payload, announcer{"by", by.addr})
		if len(kept) > 5 && kept[0] == gossip.KindChecksum {
			kept = kept[5:]
		}
		parts := [][]byte{kept}
		if len(kept) > 0 && kept[0] == gossip.KindCompound {
			parts, _ = gossip.SplitCompound(kept)
		}
		for _, part := range parts {
			if len(part) == 0 {
				continue
			}
			read := func(into any) {
				if err := codec.NewDecoder(bytes.NewReader(part[1:]), &codec.MsgpackHandle{}).Decode(into); err != nil {
					t.Fatalf("memberlist cannot read %x of %x: %v", part, payload, err)
				}
			}
			switch part[0] {
			case gossip.KindAlive:
				var a gossip.Alive
				if read(&a); a.Node == subject.self && (a.Incarnation != newest || !bytes.Equal(a.Meta, statements[newest])) {
					t.Fatalf("memberlist reads an announcement at %d with %x, from %x", a.Incarnation, a.Meta, payload)
				}
			case gossip.KindSuspect:
				var d gossip.Doubt
				if read(&d); d.Node != subject.self || d.Incarnation > newest {
					t.Fatalf("memberlist reads the doubt %+v, from %x", d, payload)
				}
			case gossip.KindDead:
				var d gossip.Doubt
				if read(&d); d.From != d.Node || !slices.Contains([]string{"by"}, idOf(d.Node)) {
					t.Fatalf("memberlist reads the death %+v, from %x", d, payload)
				}
			}
		}
	})
}

func idOf(instance string) string {
	id, _, _ := gossip.SplitInstance(instance)
	return id
}

// FuzzOutgoing gives a member what its memberlist could send: only its own announcement changes,
// and a receiver reads the rest as it was.
func FuzzOutgoing(f *testing.F) {
	w := newWire(f)
	from, third := w.member("from", nil), w.member("third", nil)
	template := from.template(f)
	plain := from.alive(f, func(_ *gossip.Metadata, a *gossip.Alive) { a.Incarnation, a.Meta = 3, template })
	f.Add(plain)
	f.Add(append([]byte{gossip.KindChecksum, 0, 0, 0, 0}, plain...))
	f.Add(compound([]byte{gossip.KindUser, 1}, plain, third.stated(f, 2, nil)))
	f.Add(exchanged(f, nil, from.state(f), third.state(f)))
	f.Fuzz(func(t *testing.T, message []byte) {
		if states, err := from.outgoingStates(message); err == nil && !bytes.Contains(message, []byte(from.self)) && !bytes.Equal(states, message) {
			t.Fatalf("the states %x leave as %x", message, states)
		}
		out, err := from.outgoing(message)
		if err != nil || bytes.Equal(out, message) {
			return
		}
		inner := message
		if inner[0] == gossip.KindChecksum {
			inner = inner[5:]
		}
		before, after := [][]byte{inner}, [][]byte{out}
		if inner[0] == gossip.KindCompound {
			before, _ = gossip.SplitCompound(inner)
			after, _ = gossip.SplitCompound(out)
		}
		if len(before) != len(after) {
			t.Fatalf("%d parts of %x leave as %d", len(before), message, len(after))
		}
		for i := range before {
			if bytes.Equal(before[i], after[i]) {
				continue
			}
			var was, is gossip.Alive
			if gossip.Decode(before[i][1:], &was) != nil || gossip.Decode(after[i][1:], &is) != nil || was.Node != from.self || is.Node != from.self ||
				is.Incarnation != was.Incarnation || len(is.Meta) != len(was.Meta) {
				t.Fatalf("%x leaves as %x", before[i], after[i])
			}
		}
	})
}

// After a rollout a member passes on the states of many instances that left. One that joins then
// knows neither their certificates nor their notices, and memberlist of it knows no such instance.
func TestAMemberThatPassesOnOldDeparturesIsNoDoubter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, to, known := w.member("by", nil), w.member("to", nil), w.member("known", nil)
		w.acquainted(by, to)
		w.acquainted(known, to)
		passOn := func(states ...gossip.State) {
			t.Helper()
			raw := exchanged(t, nil, states...)
			got, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.Guard, by: announcer{"by", by.addr}})
			if err != nil || !bytes.Equal(got, exchanged(t, nil)) {
				t.Errorf("memberlist reads %x, %v", got, err)
			}
			if named, forged := to.Doubters(), to.dropped(DropForged); named != nil || forged != 0 {
				t.Errorf("%v are named, %d states count as forged", named, forged)
			}
		}
		left := func(instance string) gossip.State {
			state := by.state(t)
			state.Name, state.State = instance, gossip.StateLeft
			return state
		}
		var states []gossip.State
		for n := range 2 * denialsUnnamed {
			states = append(states, left(gossip.InstanceName(fmt.Sprint("gone", n), 1)))
		}
		passOn(states...)
		if got := to.hears(t, known, known.stated(t, 1, nil)); len(got) != 1 {
			t.Fatal("the announcement does not count")
		}
		to.RecordLeave("known", known.epoch)
		time.Sleep(keepProof + time.Second)
		to.Guard.Sweep()
		for range 2 * denialsUnnamed {
			passOn(left(known.self))
		}
	})
}

func TestNoticesOfOldBootsDoNotReplaceThatOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		for _, epoch := range []uint64{30, 10, 20, 10} {
			to.RecordLeave("known", epoch)
		}
		if !to.HasLeft(gossip.InstanceName("known", 30)) || !to.HasLeft(gossip.InstanceName("known", 20)) || to.HasLeft(gossip.InstanceName("known", 10)) {
			t.Error("the notices of the last two boots are not those that are kept")
		}
	})
}
