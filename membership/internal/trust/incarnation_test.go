package trust

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/membership/internal/gossip"
)

func TestAnIncarnationIsBoundedByTheAgeOfItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		now := uint64(time.Now().UnixMilli())
		for _, c := range []struct {
			instance string
			highest  int64 // -1 if none is allowed
		}{
			{gossip.InstanceName("n", now), incarnationHeadStart},
			{gossip.InstanceName("n", now-999), incarnationHeadStart},
			{gossip.InstanceName("n", now-1000), incarnationHeadStart + 10},
			{gossip.InstanceName("n", now-60_000), incarnationHeadStart + 600},
			{gossip.InstanceName("n", now+60_000), incarnationHeadStart}, // in the future
			{gossip.InstanceName("n", 1<<64-1), incarnationHeadStart},
			{gossip.InstanceName("n", 0), maxIncarnation},
			{"no instance", -1},
		} {
			for incarnation, want := range map[uint32]bool{0: c.highest >= 0, uint32(max(0, c.highest)): c.highest >= 0, uint32(c.highest + 1): c.highest < -1} {
				if got := to.incarnationAllowed(c.instance, incarnation); got != want {
					t.Errorf("%s at incarnation %d is allowed: %v", c.instance, incarnation, got)
				}
			}
		}
	})
}

func TestAnInstanceLeavesByItsOwnWordOrByItsSignedNotice(t *testing.T) {
	to := newWire(t).member("to", nil)
	to.RecordLeave("n", 1)
	for _, c := range []struct {
		instance, by string
		want         bool
	}{
		{"n.1", "other", true}, {"n.2", "other", false}, {"n.2", "n", true}, {"m.1", "other", false}, {"no instance", "no instance", false}, {"no instance", "", false},
	} {
		if got := to.mayLeave(c.instance, announcer{id: c.by}); got != c.want {
			t.Errorf("%s may leave by the word of %q: %v", c.instance, c.by, got)
		}
	}
}

func TestANoticeOfLeavingIsForgottenAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		to.RecordLeave("n", 1)
		time.Sleep(time.Minute)
		to.RecordLeave("n", 2)
		time.Sleep(keepProof)
		if to.Sweep(); !to.HasLeft("n.2") {
			t.Error("a notice is forgotten too early")
		}
		time.Sleep(time.Second)
		if to.Sweep(); len(to.leaves) != 0 {
			t.Errorf("left over: %v", to.leaves)
		}
	})
}

// memberlist has the metadata without an incarnation, and with the certificate's id.
func TestTheTemplateOfTheOwnMetadataIsCompletedForEachIncarnation(t *testing.T) {
	w := newWire(t)
	m, to := w.member("m", nil), w.member("to", nil)
	to.knows(t, m)
	template, err := m.Template(gossip.Metadata{Format: gossip.MetadataFormat, Cluster: "test", Environment: "ci", ID: "m", Epoch: m.epoch, Role: "worker"})
	if err != nil || !bytes.Equal(template, m.template(t)) {
		t.Fatalf("the template is %x, want %x: %v", template, m.template(t), err)
	}
	if m.own.signedUpTo() != 0 {
		t.Error("something is signed before it leaves")
	}
	var all [][]byte
	for _, incarnation := range []uint32{1, 7, 3, 3} {
		signed, err := m.stateOwn(template, incarnation)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, signed)
		proven, err := to.proofs.prove(announced{name: m.self, addr: m.addr, metadata: signed, incarnation: incarnation})
		if err != nil || proven.Incarnation != incarnation {
			t.Errorf("at incarnation %d: %+v, %v", incarnation, proven, err)
		}
	}
	if m.own.signedUpTo() != 7 {
		t.Errorf("signed up to %d, want 7", m.own.signedUpTo())
	}
	if &all[2][0] != &all[3][0] {
		t.Error("the same statement is signed twice")
	}
	other := bytes.Clone(template)
	other[len(other)-1] ^= 1 // other metadata at the same incarnation
	if signed, err := m.stateOwn(other, 3); err != nil || &signed[0] == &all[3][0] {
		t.Errorf("other metadata at the same incarnation is not signed anew: %v", err)
	}
	short := binary.BigEndian.AppendUint32(nil, unstated)
	for name, c := range map[string]struct {
		metadata []byte
		ok       bool
	}{
		"empty":                    {nil, false},
		"a signature only":         {make([]byte, MaxSignature), false},
		"less than an incarnation": {make([]byte, 3+MaxSignature), false},
		"an incarnation only":      {append(slices.Clone(short), make([]byte, MaxSignature)...), true},
		"one that is stated":       {append([]byte{0, 0, 0, 1}, make([]byte, MaxSignature)...), false},
	} {
		if _, err := m.stateOwn(c.metadata, 9); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m.own.signedUpTo() != 9 {
		t.Errorf("signed up to %d, want 9", m.own.signedUpTo())
	}
	if err := func() error {
		_, err := m.Template(gossip.Metadata{ID: string(make([]byte, 600))})
		return err
	}(); err == nil {
		t.Error("metadata that is too long has a template")
	}
}

// A process with the same name and certificate at another address is a mistake of operators, which
// memberlist reports. Anything else about the node itself is an echo, or invented.
func TestOfAnotherProcessWithItsNameANodeHearsOnlyWhatIsProven(t *testing.T) {
	w := newWire(t)
	m, to := w.member("m", nil), w.member("to", nil)
	if _, err := m.stateOwn(m.template(t), 3); err != nil {
		t.Fatal(err)
	}
	at := func(port uint16, signed bool) func(*gossip.Metadata, *gossip.Alive) {
		return func(d *gossip.Metadata, a *gossip.Alive) {
			a.Port = port
			if signed {
				d.GossipAddr = gossip.AddrPort(a.Addr, a.Port)
			}
		}
	}
	for _, c := range []struct {
		name    string
		message []byte
		reason  string
	}{
		{"its own announcement", m.stated(t, 3, nil), dropIdle},
		{"its own at an incarnation that it has not signed", m.stated(t, 4, nil), dropIncarnation},
		{"another process", m.stated(t, 9, at(9, true)), ""},
		{"another address that is not signed", m.stated(t, 3, at(9, false)), dropUnproven},
	} {
		var a gossip.Alive
		if err := gossip.Decode(c.message[1:], &a); err != nil {
			t.Fatal(err)
		}
		if reason := m.checkAlive(a, announcer{"to", to.addr}); reason != c.reason {
			t.Errorf("%s: %q, want %q", c.name, reason, c.reason)
		}
	}
}

func TestAMemberThatDoubtsOthersWithoutACauseIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		if to.Doubters() != nil {
			t.Errorf("named without a doubt: %v", to.Doubters())
		}
		for range denialsUnnamed {
			to.deny("by")
		}
		to.deny("other")
		if to.Doubters() != nil {
			t.Errorf("named too early: %v", to.Doubters())
		}
		time.Sleep(time.Minute)
		if to.deny("by"); fmt.Sprint(to.Doubters()) != fmt.Sprint(map[string]uint64{"by": denialsUnnamed + 1}) {
			t.Errorf("named are %v", to.Doubters())
		}
		time.Sleep(keepProof)
		if to.Sweep(); len(to.doubts.denied) != 1 || len(to.Doubters()) != 1 {
			t.Errorf("%d are kept, want the one that was denied last", len(to.doubts.denied))
		}
		time.Sleep(time.Second)
		if to.Sweep(); len(to.doubts.denied) != 0 {
			t.Errorf("left over: %v", to.doubts.denied)
		}
	})
}

// A doubt begins when it is about a later incarnation than those before, and is then free.
func TestDoubtsAreCountedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d doubts
		const all = 10
		begins := func(author, subject string, incarnation uint32) bool {
			return d.begin(doubtKey{author, subject}, incarnation, all)
		}
		for incarnation := range uint32(doubtsPerSubject) {
			for _, author := range []string{"a", "b", "a"} {
				if !begins(author, "s", incarnation) {
					t.Errorf("a doubt of %s at %d does not count", author, incarnation)
				}
			}
		}
		if begins("a", "s", doubtsPerSubject) || !begins("b", "s", doubtsPerSubject) || !begins("a", "s", doubtsPerSubject) {
			t.Error("of one author 6 doubts begin, and those of others are free to confirm")
		}
		for n := range all - doubtsPerSubject {
			if !begins("a", fmt.Sprint("s", n), 0) {
				t.Errorf("doubt %d about all is refused", doubtsPerSubject+n+1)
			}
		}
		if begins("a", "more", 0) {
			t.Error("more doubts than about all")
		}
		time.Sleep(time.Minute)
		if begins("a", "more", 0) {
			t.Error("the minute has not passed")
		}
		time.Sleep(time.Nanosecond)
		for incarnation := range uint32(doubtsPerSubject) {
			if !begins("a", "more", incarnation) {
				t.Error("the minute has passed")
			}
		}
	})
}
