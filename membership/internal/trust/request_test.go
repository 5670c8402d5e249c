package trust

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// keyOf is the id of a member's certificate.
func (m *guarded) keyOf() keyID { return identity.KeyID(m.cfg.Identity.Chain()[0]) }

func TestARequestIsRepeatedLaterAndLaterAndThenDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		to := w.member("to", nil)
		var asked []string
		to.send = func(_ []byte, addr string) { asked = append(asked, addr) }
		to.request(keyID{1}, requestSource{from: "10.0.1.1:1", also: "10.0.1.2:1"})
		to.request(keyID{1}, requestSource{from: "10.0.1.1:1"}) // known already
		var waits []time.Duration
		var dialled [][]string
		for len(to.requested) > 0 {
			next, dial := to.sendRequests()
			waits, dialled = append(waits, next), append(dialled, dial)
			time.Sleep(next)
		}
		ms := time.Millisecond
		want := []time.Duration{250 * ms, 500 * ms, time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second, time.Hour}
		if !slices.Equal(waits, want) {
			t.Errorf("the waits are %v, want %v", waits, want)
		}
		a, b := "10.0.1.1:1", "10.0.1.2:1"
		if want := []string{a, b, a, b, a, b, a, b}; !slices.Equal(asked, want) {
			t.Errorf("asked are %q, want %q", asked, want)
		}
		for i, dial := range dialled {
			if want := i == dialAttempt-1; want != slices.Equal(dial, []string{b}) || !want && dial != nil {
				t.Errorf("at attempt %d a stream is opened to %q", i+1, dial)
			}
		}
	})
}

func TestARequestNeedsAnAddressAndAsksFew(t *testing.T) {
	to := newWire(t).member("to", nil)
	to.request(keyID{1}, requestSource{})
	if to.sendRequests(); len(to.requested) != 0 {
		t.Error("a request without an address is kept")
	}
	for i := range 10 {
		to.request(keyID{2}, requestSource{from: fmt.Sprint("10.0.1.", i, ":1")})
	}
	if n := len(to.requested[keyID{2}].from); n != maxAsked {
		t.Errorf("%d addresses are asked, want %d", n, maxAsked)
	}
}

// No stream is opened to the address of a stranger, which may be forged.
func TestAStrangerThatAMemberNamesCountsForTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		to.request(keyID{1}, requestSource{from: "10.0.1.1:1", stranger: true})
		to.request(keyID{2}, requestSource{from: "10.0.1.2:1", stranger: true})
		to.request(keyID{2}, requestSource{from: "10.0.1.3:1"})
		to.request(keyID{2}, requestSource{from: "10.0.1.3:1"})
		if to.strangerRequests != 1 {
			t.Errorf("%d requests are of strangers, want 1", to.strangerRequests)
		}
		var dialled []string
		for len(to.requested) > 0 {
			next, dial := to.sendRequests()
			dialled = append(dialled, dial...)
			time.Sleep(next)
		}
		if want := []string{"10.0.1.3:1"}; !slices.Equal(dialled, want) || to.strangerRequests != 0 {
			t.Errorf("streams are opened to %q, want %q; %d strangers are left", dialled, want, to.strangerRequests)
		}
	})
}

// A statement or a stranger may be the first to name a certificate that does not fit into a packet, and a
// member much later.
func TestAMemberThatNamesACertificateLateOpensAStreamAsWell(t *testing.T) {
	for name, first := range map[string]requestSource{"a stranger": {from: "10.0.1.2:1", stranger: true}, "a statement": {from: "10.0.1.2:1", author: "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := newWire(t).member("to", nil)
				to.request(keyID{2}, first)
				for range dialAttempt + 1 {
					next, dial := to.sendRequests()
					if len(dial) > 0 {
						t.Errorf("a stream is opened to %q", dial)
					}
					time.Sleep(next)
				}
				var dialled []string
				for to.request(keyID{2}, requestSource{from: "10.0.1.3:1"}); len(to.requested) > 0; {
					next, dial := to.sendRequests()
					dialled = append(dialled, dial...)
					time.Sleep(next)
				}
				if want := []string{"10.0.1.3:1"}; !slices.Equal(dialled, want) {
					t.Errorf("streams are opened to %q, want %q", dialled, want)
				}
			})
		})
	}
}

// The members that announce a holder have its certificate in packets only.
func TestAStreamIsOpenedToTheHolderAndNotToThoseThatAnnounceIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		to.request(keyID{2}, requestSource{from: "10.0.1.1:1", also: "10.0.1.9:1"})
		to.request(keyID{2}, requestSource{from: "10.0.1.2:1", also: "10.0.1.9:1"})
		var dialled []string
		for len(to.requested) > 0 {
			next, dial := to.sendRequests()
			dialled = append(dialled, dial...)
			time.Sleep(next)
		}
		if want := []string{"10.0.1.9:1"}; !slices.Equal(dialled, want) {
			t.Errorf("streams are opened to %q, want %q", dialled, want)
		}
	})
}

// A member that joins a large fleet has many certificates to fetch by stream, and few streams at a time.
func TestAStreamForWhichThereIsNoPlaceIsOpenedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		const holders, each = 40, 50 * time.Millisecond
		greeted := make(map[string]int)
		var last time.Time
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			to.Run(ctx, func(addr string) bool {
				if time.Since(last) < each {
					return false
				}
				last = time.Now()
				greeted[addr]++
				return true
			})
		}()
		for n := range holders {
			to.request(keyID{1, byte(n)}, requestSource{from: "10.0.1.1:1", also: fmt.Sprintf("10.0.2.%d:1", n)})
		}
		time.Sleep(8 * time.Second)
		stop()
		<-ended
		if len(greeted) != holders {
			t.Errorf("streams are opened to %d holders of %d", len(greeted), holders)
		}
		for addr, times := range greeted {
			if times != 1 {
				t.Errorf("%d streams are opened to %s", times, addr)
			}
		}
	})
}

func TestRequestsOfMembersAndOfStrangersHaveLimitsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", func(s *setup) { s.MaxMembers = 10 })
		n := uint64(0)
		requests := func(count int, stranger bool) (made int) {
			before := len(to.requested)
			for range count {
				n++
				to.request(keyID(binary.BigEndian.AppendUint64(nil, n)), requestSource{from: "10.0.1.1:1", stranger: stranger})
			}
			return len(to.requested) - before
		}
		if made := requests(200, true); made != 100 {
			t.Errorf("%d requests of strangers at a time, want 100", made)
		}
		if made := requests(20, false); made != 10 {
			t.Errorf("%d requests of members, want 10", made)
		}
		for key, a := range to.requested { // of members; those of strangers remain
			if !a.stranger {
				to.drop(key, a)
			}
		}
		for range 9 {
			time.Sleep(time.Second)
			requests(200, true)
		}
		if to.strangerRequests != maxStrangers || len(to.requested) != maxStrangers {
			t.Errorf("%d requests of strangers of %d, want %d", to.strangerRequests, len(to.requested), maxStrangers)
		}
	})
}

func TestARoundHasFewPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		packets := 0
		to.send = func([]byte, string) { packets++ }
		for i := range packetsPerRound + 1 {
			to.request(keyID(binary.BigEndian.AppendUint64(nil, uint64(i))), requestSource{from: fmt.Sprint("10.0.2.", i, ":1")})
		}
		if next, _ := to.sendRequests(); packets != packetsPerRound || next != 10*time.Millisecond {
			t.Errorf("%d packets, the next round in %v", packets, next)
		}
		time.Sleep(10 * time.Millisecond)
		if next, _ := to.sendRequests(); packets != packetsPerRound+1 || next != requestInterval-10*time.Millisecond {
			t.Errorf("%d packets after the second round, the next one in %v", packets, next)
		}
	})
}

func TestRequestsAreCollectedAndSentUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newWire(t).member("to", nil)
		begun, sent, greeted := time.Now(), []time.Duration{}, []string{}
		to.send = func([]byte, string) { sent = append(sent, time.Since(begun)) }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			to.Run(ctx, func(addr string) bool { greeted = append(greeted, addr); return true })
			close(ended)
		}()
		to.request(keyID{1}, requestSource{from: "10.0.1.1:1"})
		to.request(keyID{2}, requestSource{from: "10.0.1.1:1"})
		time.Sleep(time.Second)
		synctest.Wait() // for what Run has written
		if want := []time.Duration{requestDelay, requestDelay + requestInterval, requestDelay + 3*requestInterval}; !slices.Equal(sent, want) {
			t.Errorf("questions were sent after %v, want %v", sent, want)
		}
		if want := []string{"10.0.1.1:1", "10.0.1.1:1"}; !slices.Equal(greeted, want) {
			t.Errorf("greeted are %q, want %q", greeted, want)
		}
		stop()
		<-ended
		ctx, stop = context.WithCancel(t.Context())
		to.request(keyID{3}, requestSource{from: "10.0.1.1:1"})
		stop() // while requests are collected
		to.Run(ctx, nil)
	})
}

// The nonce shows that the holder lives at an address if no other address has it.
func TestAMemberLivesWhereItAloneWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by := w.member("by", nil)
		for _, c := range []struct {
			source requestSource
			want   string
		}{
			{requestSource{from: by.addr}, fmt.Sprint("by ", by.epoch, " ", by.addr)},
			{requestSource{from: by.addr, also: "10.6.6.6:666"}, ""},
			{requestSource{from: "10.6.6.6:666", also: by.addr}, ""},
		} {
			answered := ""
			to := w.member("to", func(s *setup) {
				s.Answered = func(id string, epoch uint64, addr string) { answered = fmt.Sprint(id, " ", epoch, " ", addr) }
			})
			to.request(by.keyOf(), c.source)
			for range 2 {
				next, _ := to.sendRequests()
				time.Sleep(next)
			}
			if len(to.requested) != 0 || answered != c.want {
				t.Errorf("asked at %+v: %q is known to live, want %q; %d requests are left", c.source, answered, c.want, len(to.requested))
			}
		}
	})
}

func TestAnAnswerCountsOnlyForTheQuestionThatItAnswers(t *testing.T) {
	w := newWire(t)
	by, other, to := w.member("by", nil), w.member("other", nil), w.member("to", nil)
	const nonce = 7
	answer := func(change func(body []byte) []byte, sign *guarded) []byte {
		body := binary.BigEndian.AppendUint64([]byte{packetAnswer}, nonce)
		body = appendChain(appendUint48(appendUint48(body, by.epoch), 1), by.cfg.Identity.Chain())
		if change != nil {
			body = change(body)
		}
		return append(body, sign.proofs.sign(statementAnswer, body)...)
	}
	for name, c := range map[string]struct {
		body   []byte
		reason string
	}{
		"as it should be":            {answer(nil, by), ""},
		"with another nonce":         {answer(func(b []byte) []byte { b[8]++; return b }, by), dropStranger},
		"of another member":          {answer(nil, other), dropStranger},
		"too short":                  {answer(nil, by)[:1+8+12+MaxSignature-1], dropUnsigned},
		"without a certificate":      {answer(func(b []byte) []byte { return b[:1+8+12] }, by), dropCertificate},
		"with another certificate":   {answer(func(b []byte) []byte { return appendChain(b[:1+8+12], other.cfg.Identity.Chain()) }, by), dropCertificate},
		"with a damaged certificate": {answer(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, by), dropCertificate},
		"with a damaged signature":   {func() []byte { b := answer(nil, by); b[len(b)-1] ^= 1; return b }(), dropSignature},
	} {
		to := w.member("to", nil)
		to.request(by.keyOf(), requestSource{from: by.addr})
		to.requested[by.keyOf()].nonce = nonce
		if reason := to.answered(c.body, by.addr); reason != c.reason || (len(to.sessions) == 1) != (reason == "") {
			t.Errorf("%s: refused as %q, want %q; %d sessions", name, reason, c.reason, len(to.sessions))
		}
	}
	foreign := newWire(t).member("by", nil) // of another authority
	to.request(foreign.keyOf(), requestSource{from: by.addr})
	to.requested[foreign.keyOf()].nonce = nonce
	if reason := to.answered(answer(func(b []byte) []byte { return appendChain(b[:1+8+12], foreign.cfg.Identity.Chain()) }, foreign), by.addr); reason != dropCertificate {
		t.Errorf("of another authority: %q", reason)
	}
	if reason := to.answered(answer(nil, by), by.addr); reason != dropStranger {
		t.Errorf("without a question: %q", reason)
	}
}

func TestOnlyARequestedCertificateIsTaken(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	chain := appendChain(nil, by.cfg.Identity.Chain())
	if reason := to.receiveCertificate(chain); reason != dropStranger || len(to.proofs.certificates) != 0 {
		t.Errorf("not requested: %q, %d certificates are known", reason, len(to.proofs.certificates))
	}
	to.request(by.keyOf(), requestSource{from: by.addr})
	for _, bad := range [][]byte{nil, {0}, chain[:len(chain)-1], append(slices.Clone(chain), 0)} {
		if reason := to.receiveCertificate(bad); reason != dropCertificate {
			t.Errorf("%d bytes: %q, want %q", len(bad), reason, dropCertificate)
		}
	}
	stranger := newWire(t).member("by", nil) // of another authority
	to.request(stranger.keyOf(), requestSource{from: by.addr})
	if reason := to.receiveCertificate(appendChain(nil, stranger.cfg.Identity.Chain())); reason != dropCertificate {
		t.Errorf("of another authority: %q", reason)
	}
	if reason := to.receiveCertificate(chain); reason != "" || to.requested[by.keyOf()] != nil {
		t.Errorf("requested: %q, and still requested: %v", reason, to.requested[by.keyOf()] != nil)
	}
}

func TestCertificatesInAMessageAreLimited(t *testing.T) {
	one := []byte("certificate")
	for n := range 7 {
		chain, err := decodeChain(appendChain(nil, slices.Repeat([][]byte{one}, n)))
		if ok := n >= 1 && n <= maxCertificates; (err == nil) != ok || ok && (len(chain) != n || !bytes.Equal(chain[n-1], one)) {
			t.Errorf("%d certificates: %d of them, %v", n, len(chain), err)
		}
	}
	for size, ok := range map[int]bool{maxChain - 3: true, maxChain - 2: false} {
		if _, err := decodeChain(appendChain(nil, [][]byte{make([]byte, size)})); (err == nil) != ok {
			t.Errorf("a certificate of %d bytes: %v", size, err)
		}
	}
	whole := appendChain(nil, [][]byte{one, one})
	for cut := range whole {
		if _, err := decodeChain(whole[:cut]); err == nil {
			t.Errorf("%d of %d bytes are accepted", cut, len(whole))
		}
	}
}

// What waits for a certificate is delivered once it is known, and once only.
func TestWhatWaitsForACertificateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, to := w.member("by", nil), w.member("to", nil)
		for i := range maxParkedPackets + 2 {
			to.Receive(by.wrapped(t, []byte{gossip.KindUser, byte(i)}, to.addr), by.addr)
		}
		if to.packets != maxParkedPackets || to.dropped(dropStranger) != 2 {
			t.Errorf("%d packets wait, %d are dropped", to.packets, to.dropped(dropStranger))
		}
		to.sendRequests()
		if len(to.delivered) != maxParkedPackets || to.packets != 0 || len(to.requested) != 0 {
			t.Errorf("%d are delivered, %d wait, %d requests are left", len(to.delivered), to.packets, len(to.requested))
		}
		// Of one certificate few instances wait, and the last message of each.
		third := w.member("third", nil)
		for i := range uint64(maxParkedPackets + 2) {
			for incarnation := range uint32(2) {
				to.Receive(by.wrapped(t, third.boot(t, third.epoch+i, incarnation), to.addr), by.addr)
			}
		}
		if a := to.requested[third.keyOf()]; len(a.alive) != maxParkedPackets || to.parked != maxParkedPackets || to.dropped(dropTooMany) != 4 {
			t.Errorf("%d instances wait, %d are counted, %d messages are dropped", len(a.alive), to.parked, to.dropped(dropTooMany))
		}
		to.drop(third.keyOf(), to.requested[third.keyOf()])
		if to.parked != 0 {
			t.Errorf("%d are counted after the end", to.parked)
		}
		// All together are as many as there may be members, and so are the requests of members.
		full := w.member("full", func(s *setup) { s.MaxMembers = 1 })
		full.requestLocked(keyID{1}, requestSource{from: "10.0.1.1:1"})
		if full.parkAlive(keyID{2}, "x.1", nil, requestSource{}, "by") || full.parked != 0 {
			t.Errorf("a message waits for a certificate that is not requested: %d", full.parked)
		}
		if !full.parkAlive(keyID{1}, "x.1", nil, requestSource{}, "by") || full.parkAlive(keyID{1}, "x.2", nil, requestSource{}, "by") || full.parked != 1 {
			t.Errorf("%d messages wait, want 1", full.parked)
		}
	})
}

func TestAQuestionThatIsNoneIsRefused(t *testing.T) {
	w := newWire(t)
	to := w.member("to", nil)
	key := to.keyOf()
	one := append(key[:], "nonce678"...)
	for name, c := range map[string]struct {
		keys   []byte
		reason string
	}{
		"empty":           {nil, dropUnsigned},
		"with half a key": {one[:8], dropUnsigned},
		"too long":        {bytes.Repeat(one, maxQuestion+1), dropUnsigned},
		"long":            {bytes.Repeat(one, maxQuestion), ""},
	} {
		if reason := to.answer(c.keys, "10.6.6.6:666"); reason != c.reason {
			t.Errorf("a question that is %s: %q, want %q", name, reason, c.reason)
		}
	}
}

// A flood of strangers takes no answers of members.
func TestStrangersGetFewerAnswersThanMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		member, to := w.member("member", nil), w.member("to", nil)
		to.knows(t, member)
		if _, err := to.proofs.prove(member.announcement(t, nil)); err != nil {
			t.Fatal(err)
		}
		question := []byte("unknown!nonce678")
		for _, c := range []struct {
			from string
			want int
		}{{"10.6.6.6:666", 500}, {member.addr, 5000}} {
			answers := 0
			for range 6000 {
				if to.answer(question, c.from) == "" {
					answers++
				}
			}
			if answers != c.want {
				t.Errorf("%s gets %d answers at a time, want %d", c.from, answers, c.want)
			}
		}
	})
}
