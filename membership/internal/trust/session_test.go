package trust

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// The reference keeps all ticks.
func TestASessionAcceptsATickOnceAndInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begun := uint64(rapid.IntRange(0, 200).Draw(t, "floor"))
		s := &session{floor: begun, fastest: time.Hour}
		var seen []uint64
		for range rapid.IntRange(1, 3*keptTicks).Draw(t, "packets") {
			tick := uint64(rapid.IntRange(0, 300).Draw(t, "tick"))
			late := tick <= begun
			if len(seen) > keptTicks {
				late = late || tick <= seen[len(seen)-keptTicks-1]
			}
			late = late || slices.Contains(seen, tick)
			if verdict := s.checkReplay(tick, 0, false); (verdict == sessionReplayed) != late {
				t.Fatalf("tick %d after %v is replayed: %v", tick, seen, verdict)
			}
			if s.record(tick, time.Duration(tick)) == late {
				t.Fatalf("tick %d after %v is recorded: %v", tick, seen, !late)
			}
			if late {
				continue
			}
			if s.used != time.Duration(tick) {
				t.Fatalf("used at %v, want %v", s.used, time.Duration(tick))
			}
			seen = append(seen, tick)
			slices.Sort(seen)
		}
		if len(s.recent) != min(len(seen), keptTicks) {
			t.Fatalf("%d ticks are kept of %d", len(s.recent), len(seen))
		}
	})
}

func TestAPacketIsLateByTheFastestOfItsSender(t *testing.T) {
	const tick = 1_000_000 // a second
	for _, c := range []struct {
		delay  time.Duration
		waited bool
		want   sessionVerdict
	}{
		{-time.Hour, false, sessionFresh}, {maxDelay, false, sessionFresh}, {maxDelay + 1, false, sessionStale},
		{5 * time.Second, true, sessionFresh}, {5*time.Second + 1, true, sessionStale},
	} {
		s := &session{fastest: time.Minute}
		if got := s.checkReplay(tick, time.Second+time.Minute+c.delay, c.waited); got != c.want {
			t.Errorf("delayed by %v, waited %v: %v, want %v", c.delay, c.waited, got, c.want)
		}
		s.record(tick, time.Second+time.Minute+c.delay)
		if want := time.Minute + min(0, c.delay); s.fastest != want {
			t.Errorf("delayed by %v: the fastest packet took %v, want %v", c.delay, s.fastest, want)
		}
	}
	if d := offset(1<<64-1, 0); d >= 0 {
		t.Errorf("the last tick of all has the offset %v", d)
	}
}

func TestASessionBeginsWithPacketsThatHaveWaitedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", func(s *setup) { s.MaxMembers = 1 })
		for tick, floor := range map[uint64]uint64{0: 0, parkedTicks: 0, parkedTicks + 7: 7} {
			id := sessionKey{keyID{1}, tick}
			time.Sleep(time.Second)
			to.begin(id, tick)
			if s := to.sessions[id]; s.floor != floor || s.used != to.elapsed() || s.fastest != offset(tick, to.elapsed()) {
				t.Errorf("from tick %d the session is %+v, want the floor %d", tick, s, floor)
			}
			to.endSession(id)
		}
		// One that is known goes on, by the newer offset.
		id := sessionKey{keyID{1}, 1}
		to.begin(id, 0)
		to.sessions[id].record(9, 0)
		time.Sleep(time.Minute)
		if to.begin(id, 0); to.sessions[id].used != to.elapsed() || to.sessions[id].fastest != to.elapsed() || len(to.sessions[id].recent) != 1 || len(to.epochs[keyID{1}]) != 1 {
			t.Errorf("the session has become %+v", to.sessions[id])
		}
		for n := range byte(10) {
			to.begin(sessionKey{keyID{n}, 1}, 0)
		}
		if want := 2 * sessionsPerCertificate; len(to.sessions) != want || to.dropped(dropTooMany) != 10-want {
			t.Errorf("%d sessions, %d refused", len(to.sessions), to.dropped(dropTooMany))
		}
		time.Sleep(keepProof)
		if to.Sweep(); len(to.sessions) == 0 {
			t.Error("a session is forgotten too early")
		}
	})
}

func TestTicksOfANodeOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWire(t).member("m", nil)
		time.Sleep(time.Second)
		for n := range uint64(3) {
			if tick := m.NextTick(); tick != 1_000_000+n {
				t.Errorf("tick %d is %d, want a second in microseconds and %d more", n, tick, n)
			}
		}
		time.Sleep(time.Second)
		if tick := m.NextTick(); tick != 2_000_000 {
			t.Errorf("a second later it is %d", tick)
		}
	})
}

// While a key is rotated, members seal with one of two.
func TestEveryInstalledKeyOpensAPacket(t *testing.T) {
	w := newWire(t)
	key := func(n byte) []byte { k := sha256.Sum256([]byte{n}); return k[:] }
	installed := [][]byte{key(1), key(2)}
	to := w.member("to", func(s *setup) {
		s.PrimaryKey, s.Keys = func() []byte { return installed[0] }, func() [][]byte { return installed }
	})
	from := w.member("from", withKey(2))
	packet, err := from.seal([]byte{packetAsk})
	if err != nil {
		t.Fatal(err)
	}
	if body, reason := to.open(packet); reason != "" || !bytes.Equal(body, []byte{packetAsk}) {
		t.Errorf("sealed with the second key: %x, %q", body, reason)
	}
	head := len(to.header) + 2
	for name, c := range map[string]struct {
		packet []byte
		reason string
	}{
		"without a body":       {packet[:head], dropUnsigned},
		"of another kind":      {func() []byte { p := bytes.Clone(packet); p[head-2]++; return p }(), dropUnsigned},
		"of another format":    {func() []byte { p := bytes.Clone(packet); p[head-1]++; return p }(), dropUnsigned},
		"shorter than a nonce": {packet[:head+11], dropSeal},
		"with another label":   {func() []byte { p := bytes.Clone(packet); p[head-3]++; return p }(), dropSeal},
		"damaged":              {func() []byte { p := bytes.Clone(packet); p[len(p)-1]++; return p }(), dropSeal},
		"with an empty body":   {func() []byte { p, _ := from.seal(nil); return p }(), dropSeal},
	} {
		if body, reason := to.open(c.packet); reason != c.reason {
			t.Errorf("%s: %x, %q, want %q", name, body, reason, c.reason)
		}
	}
	if body, reason := w.member("plain", nil).open(append(bytes.Clone(packet[:head]), packetAsk)); reason != "" || len(body) != 1 {
		t.Errorf("without a key: %x, %q", body, reason)
	}
	installed = [][]byte{[]byte("no key"), key(2)}
	if _, reason := to.open(packet); reason != "" {
		t.Errorf("next to a key that is none: %q", reason)
	}
	if _, err := to.seal(nil); err == nil {
		t.Error("sealed with a key that is none")
	}
	// Keys that were rotated out are not kept.
	for n := range byte(3 * maxSealers) {
		if _, err := to.sealer(key(n)); err != nil || len(to.sealers) > maxSealers {
			t.Fatalf("%d keys are kept: %v", len(to.sealers), err)
		}
	}
	first, _ := to.sealer(key(100))
	if again, _ := to.sealer(key(100)); again != first {
		t.Error("a key is expanded again for each packet")
	}
}

func TestAPacketOfTheWrongSizeIsRefused(t *testing.T) {
	w := newWire(t)
	a, b := w.member("a", nil), w.member("b", nil)
	if _, err := a.Wrap(a.header[1:], b.addr); err == nil {
		t.Error("a packet without a label is signed")
	}
	if reason := b.gossip(make([]byte, 1+12+MaxSignature), a.addr, false); reason != dropUnsigned {
		t.Errorf("a packet without a payload: %q", reason)
	}
	w.acquainted(a, b)
	if got := b.hears(t, a, []byte{gossip.KindUser}); len(got) != 1 {
		t.Error("the shortest payload does not come through")
	}
	if len(a.wrapped(t, make([]byte, MaxPacket), b.addr))+sealOverhead-len(a.header) != maxDatagram {
		t.Error("the largest packet, sealed, does not fill a datagram")
	}
}

// A certificate that is refused from now on is refused in packets, whatever session there is.
func TestPacketsOfARefusedCertificateCountNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a := w.member("a", func(s *setup) {
			var err error
			if s.Identity, err = w.authority.Source(s.Claims, time.Minute); err != nil {
				t.Fatal(err)
			}
		})
		b := w.member("b", nil)
		w.acquainted(a, b)
		time.Sleep(2 * time.Minute)
		if got := b.hears(t, a, []byte{gossip.KindUser}); len(got) != 0 || b.dropped(dropCertificate) != 1 {
			t.Errorf("delivered %x, %d dropped for the certificate", got, b.dropped(dropCertificate))
		}
		if err := b.Certified(a.cfg.Identity.Chain(), a.epoch, 1); err == nil {
			t.Error("its handshake begins a session")
		}
	})
}

func TestASignatureOfAnEarlierCertificateIsRecognised(t *testing.T) {
	w := newWire(t)
	m, renewed := w.member("m", nil), w.member("m", nil)
	signature := m.Sign(StatementRecord, []byte("x"))
	if !m.SignedNow(signature) || renewed.SignedNow(signature) || m.SignedNow(nil) || m.SignedNow(signature[:len(signature)-1]) {
		t.Error("a signature is that of the certificate in use, or not")
	}
	to := w.member("to", nil)
	to.knows(t, m)
	for name, c := range map[string]Claim{
		"of another author":    {"other", StatementRecord, []byte("x"), signature},
		"of another kind":      {"m", StatementLeave, []byte("x"), signature},
		"about something else": {"m", StatementRecord, []byte("y"), signature},
		"without a signature":  {"m", StatementRecord, []byte("x"), nil},
	} {
		if err := to.Verify(c); err == nil {
			t.Errorf("a statement %s counts", name)
		}
	}
	if err := to.Verify(Claim{"m", StatementRecord, []byte("x"), signature}); err != nil {
		t.Error(err)
	}
	to.proofs.label = "test/other"
	if err := to.Verify(Claim{"m", StatementRecord, []byte("x"), signature}); err == nil {
		t.Error("a statement counts in another environment")
	}
}
