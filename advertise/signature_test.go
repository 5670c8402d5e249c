package advertise

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// unsigned is a fleet without certificates.
type unsigned struct{}

func (unsigned) Sign(membership.Statement, []byte) []byte                  { return nil }
func (unsigned) Verify(string, membership.Statement, []byte, []byte) error { return nil }
func (unsigned) SignedNow([]byte) bool                                     { return true }

// authors are the keys of members by id, in place of certificates. Nil is a fleet
// without any.
type authors interface {
	sign(id string, message []byte) []byte
	verify(id string, message, signature []byte) error
	signedNow(id string, signature []byte) bool
}

// author is one member of a fleet, whose records are signed if those of the fleet
// are.
type author struct {
	fleet authors
	id    string
}

func (a author) Sign(kind membership.Statement, statement []byte) []byte {
	if a.fleet == nil {
		return nil
	}
	return a.fleet.sign(a.id, append([]byte(kind), statement...))
}

func (a author) Verify(id string, kind membership.Statement, statement, signature []byte) error {
	if a.fleet == nil {
		return nil
	}
	return a.fleet.verify(id, append([]byte(kind), statement...), signature)
}

func (a author) SignedNow(signature []byte) bool {
	return a.fleet == nil || a.fleet.signedNow(a.id, signature)
}

// keys are made of the ids, so that every member has them; unknown lists ids whose
// key is not known yet.
type keys struct {
	mu      sync.Mutex
	unknown map[string]bool
	made    map[string]ed25519.PrivateKey
	life    map[string]int // of the key, for ids that have renewed it
	madeIn  map[string]int // signatures, by the life of the key that made them
}

func newKeys(unknown ...string) *keys {
	k := &keys{unknown: map[string]bool{}, made: map[string]ed25519.PrivateKey{}, life: map[string]int{}, madeIn: map[string]int{}}
	for _, id := range unknown {
		k.unknown[id] = true
	}
	return k
}

func (k *keys) key(id string) ed25519.PrivateKey {
	if k.made[id] == nil {
		seed := make([]byte, ed25519.SeedSize)
		copy(seed, fmt.Sprint(id, "/", k.life[id]))
		k.made[id] = ed25519.NewKeyFromSeed(seed)
	}
	return k.made[id]
}

func (k *keys) sign(id string, message []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	signature := ed25519.Sign(k.key(id), message)
	k.madeIn[string(signature)] = k.life[id]
	return signature
}

func (k *keys) signedNow(id string, signature []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	life, known := k.madeIn[string(signature)]
	return known && life == k.life[id]
}

func (k *keys) verify(id string, message, signature []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unknown[id] {
		return fmt.Errorf("member %q: %w", id, membership.ErrUnproven)
	}
	if !ed25519.Verify(k.key(id).Public().(ed25519.PublicKey), message, signature) {
		return errors.New("the signature is not of this member")
	}
	return nil
}

// learn makes the key of a member known.
func (k *keys) learn(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.unknown, id)
}

// renew gives a member another key.
func (k *keys) renew(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.life[id]++
	delete(k.made, id)
}

// signedBy encodes a record with a signature of the given member.
func (k *keys) signedBy(t tester, signer string, r Record) []byte {
	t.Helper()
	raw, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return withSignature(statementOf(raw), k.sign(signer, append([]byte(membership.StatementRecord), statementOf(raw)...)))
}

func gossiped(raw []byte) []byte { return append([]byte{kindRecord}, raw...) }

// signedNetwork runs a test in a fleet whose records are signed.
func signedNetwork(t *testing.T, unknown []string, test func(t *testing.T, n *network, k *keys)) {
	t.Helper()
	bubble(t, 0, func(t *testing.T, n *network) {
		k := newKeys(unknown...)
		n.authors = k
		test(t, n, k)
	})
}

func TestAForgedRecordTakesNoEndpointAndRaisesNoSequence(t *testing.T) {
	signedNetwork(t, nil, func(t *testing.T, n *network, k *keys) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		before := relay.catalogue.View()
		forgery := Record{NodeID: "worker-0", Epoch: worker.member.Epoch, Sequence: maxSequence, Services: echo(666)}
		unsigned, err := forgery.Encode()
		if err != nil {
			t.Fatal(err)
		}
		hint, err := encode(wireHint{"worker-0", worker.member.Epoch, maxSequence, 1, 5000})
		if err != nil {
			t.Fatal(err)
		}
		for _, victim := range []*node{relay, worker} {
			for _, payload := range [][]byte{gossiped(k.signedBy(t, "mallory", forgery)), gossiped(unsigned), append([]byte{kindHint}, hint...)} {
				victim.hear(payload)
				settle(10 * time.Second)
			}
			if got := victim.count("records_received_total", string(forged)); got != 2 {
				t.Errorf("%s counted %v forged records, want 2", victim.member.ID, got)
			}
		}
		settle(time.Minute)
		if got := relay.catalogue.View(); got.Checksum() != before.Checksum() {
			t.Errorf("the relay sees %v", got.Endpoints("echo"))
		}
		if sequenceOf(t, worker) != 1 || worker.count("records_received_total", string(foreign)) != 0 {
			t.Errorf("the worker publishes sequence %d, want 1", sequenceOf(t, worker))
		}
	})
}

func TestARecordSignedWithOurKeyIsAnsweredWithAHigherSequence(t *testing.T) {
	signedNetwork(t, nil, func(t *testing.T, n *network, k *keys) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(2 * time.Second)
		relay.hear(gossiped(k.signedBy(t, "worker-0", Record{NodeID: "worker-0", Epoch: worker.member.Epoch, Sequence: 70, Services: echo(666)})))
		settle(10 * time.Second)
		if got := endpoints(relay); sequenceOf(t, worker) != 71 || len(got) != 1 || got[0].Address != "127.0.0.1:1000" {
			t.Errorf("the worker publishes sequence %d, the relay sees %v; want 71 and the worker's own offer", sequenceOf(t, worker), got)
		}
	})
}

// A forgery that arrives with the true record is stored in addition, not in its place.
func TestAForgeryInTheSameMailDoesNotHideTheTrueRecord(t *testing.T) {
	signedNetwork(t, nil, func(t *testing.T, n *network, k *keys) {
		relay := n.join("relay-0", identity.RoleRelay)
		n.mu.Lock() // a worker whose process never speaks
		n.members["worker-0"] = membership.Member{ID: "worker-0", Epoch: 1, Role: identity.RoleWorker}
		n.publish()
		n.mu.Unlock()
		settle(time.Second)
		record := Record{NodeID: "worker-0", Epoch: 1, Sequence: 1, Services: echo(1000)}
		relay.hear(gossiped(k.signedBy(t, "worker-0", record)))
		record.Sequence = 9
		relay.hear(gossiped(k.signedBy(t, "mallory", record)))
		settle(time.Second)
		if len(endpoints(relay)) != 1 {
			t.Error("the relay does not see the true record")
		}
	})
}

func TestForgedRecordsOfAnExchangeAreDropped(t *testing.T) {
	signedNetwork(t, nil, func(t *testing.T, n *network, k *keys) {
		relay := n.join("relay-0", identity.RoleRelay)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(time.Minute)
		liar := n.join("relay-1", identity.RoleRelay)
		settle(time.Minute)
		record := Record{NodeID: "worker-0", Epoch: worker.member.Epoch, Sequence: 9, Services: echo(666)}
		forgery := k.signedBy(t, "relay-1", record)
		if err := liar.catalogue.onLoop(t.Context(), func() {
			decoded, signed, _ := decodeRecord(forgery)
			liar.catalogue.store.put(newEntry(decoded, forgery, signed), time.Now())
		}); err != nil {
			t.Fatal(err)
		}
		settle(5 * time.Minute)
		for _, honest := range []*node{relay, worker} {
			if got := honest.catalogue.View().Endpoints("echo").Of("worker-0"); got == nil || got.Address != "127.0.0.1:1000" {
				t.Errorf("%s sees %v", honest.member.ID, got)
			}
			if honest.count("records_received_total", string(forged)) == 0 {
				t.Errorf("%s counted no forged record", honest.member.ID)
			}
		}
		if sequenceOf(t, worker) != 1 {
			t.Errorf("the worker publishes sequence %d, want 1", sequenceOf(t, worker))
		}
	})
}

func TestARecordOfAnUnprovenMemberWaitsUntilItsMemberAppears(t *testing.T) {
	signedNetwork(t, []string{"late"}, func(t *testing.T, n *network, k *keys) {
		relay := n.join("relay-0", identity.RoleRelay)
		settle(time.Second)
		late := membership.Member{ID: "late", Epoch: uint64(time.Now().UnixMilli()), Role: identity.RoleWorker}
		relay.hear(gossiped(k.signedBy(t, "late", Record{NodeID: "late", Epoch: late.Epoch, Sequence: 1, Services: echo(1000)})))
		settle(time.Second)
		if got := relay.count("records_received_total", string(unproven)); got != 1 || len(endpoints(relay)) != 0 {
			t.Errorf("%v records are parked and %v are seen, want 1 and none", got, endpoints(relay))
		}
		k.learn("late")
		n.mu.Lock()
		n.members["late"] = late
		n.publish()
		n.mu.Unlock()
		settle(time.Second)
		if records, bytes := parkedAt(t, relay); len(endpoints(relay)) != 1 || records != 0 || bytes != 0 {
			t.Errorf("the relay sees %v, and %d records are parked; want one endpoint and none", endpoints(relay), records)
		}
	})
}

// parkedAt returns the records that the loop has parked.
func parkedAt(t *testing.T, p *node) (records, bytes int) {
	t.Helper()
	if err := p.catalogue.onLoop(t.Context(), func() { records, bytes = len(p.catalogue.unverified.records), p.catalogue.unverified.bytes }); err != nil {
		t.Fatal(err)
	}
	return records, bytes
}

// sequenceOf asks the loop what was published last.
func sequenceOf(t *testing.T, p *node) (sequence uint64) {
	t.Helper()
	if err := p.catalogue.onLoop(t.Context(), func() { sequence = p.catalogue.own.sequence }); err != nil {
		t.Fatal(err)
	}
	return sequence
}

func TestAParkedRecordIsForgottenAfterTenMinutes(t *testing.T) {
	signedNetwork(t, []string{"ghost"}, func(t *testing.T, n *network, k *keys) {
		relay := n.join("relay-0", identity.RoleRelay)
		relay.hear(gossiped(k.signedBy(t, "ghost", Record{NodeID: "ghost", Epoch: 1, Sequence: 1})))
		settle(parkedAge - time.Minute)
		if records, _ := parkedAt(t, relay); records != 1 {
			t.Error("the record is forgotten too soon")
		}
		settle(2 * time.Minute)
		if records, bytes := parkedAt(t, relay); records != 0 || bytes != 0 {
			t.Errorf("%d records of %d bytes are still parked", records, bytes)
		}
	})
}

func TestParkedRecordsAreBoundedInNumberAndBytes(t *testing.T) {
	entryOf := func(id string, sequence uint64, size int) *entry {
		return &entry{record: origin{NodeID: id, Epoch: 1}, raw: make([]byte, size), stamp: stamp{sequence: sequence}}
	}
	p := newUnverified()
	for i := range maxParked {
		if got := p.put(entryOf(fmt.Sprint(i), 1, 10), start); got != unproven {
			t.Fatalf("record %d is %s", i, got)
		}
	}
	if got := p.put(entryOf("one more", 1, 10), start); got != refused {
		t.Errorf("one more than fit is %s", got)
	}
	if got := p.put(entryOf("7", 2, 20), start); got != unproven || p.bytes != maxParked*10+10 {
		t.Errorf("a newer record of a parked instance is %s, %d bytes are counted", got, p.bytes)
	}
	if got := p.put(entryOf("7", 1, 10), start); got != old {
		t.Errorf("an older one is %s", got)
	}
	if got := p.put(entryOf("7", 3, maxParkedBytes), start); got != refused {
		t.Errorf("one of %d bytes is %s", maxParkedBytes, got)
	}
}

// Any member can write records of invented lives of another one, with a key that no certificate has.
func TestOfOneAuthorOneRecordIsParked(t *testing.T) {
	p := newListener(t)
	p.keys.unknown["a"] = true
	sign := func(epoch, sequence uint64) []byte {
		return p.keys.signedBy(t, "a", Record{NodeID: "a", Epoch: epoch, Sequence: sequence, Services: echo(1)})
	}
	for epoch := range uint64(100) {
		p.gossip(sign(epoch+2, 1), "a")
	}
	p.mergeAll([]examined{p.examine(sign(101, 2)), p.examine(sign(1, 9)), p.examine(sign(101, 1))}, &frames{})
	if n := len(p.unverified.records); n != 1 || p.unverified.bytes != len(sign(101, 2)) {
		t.Errorf("%d records of %d bytes are parked, want the newest one", n, p.unverified.bytes)
	}
	if p.received(unproven) != 101 || p.received(old) != 2 {
		t.Errorf("%v records are counted as unproven and %v as old, want 101 and 2", p.received(unproven), p.received(old))
	}
	p.keys.learn("a")
	p.setMembers(snapshotOf(map[string]uint64{"a": 101, "b": 1}))
	if e := p.store.entries[instance{"a", 101}]; e == nil || e.stamp.sequence != 2 || len(p.unverified.records) != 0 || p.unverified.bytes != 0 {
		t.Errorf("when its life has begun, the record is %+v and %d are parked", e, len(p.unverified.records))
	}
}

func TestWhoSendsManyRecordsOfALiveMemberWithUnknownKeysIsCutOffAndNamed(t *testing.T) {
	signedNetwork(t, []string{"worker-0"}, func(t *testing.T, n *network, k *keys) {
		log := &lockedBuffer{}
		relay := n.joinWith("relay-0", identity.RoleRelay, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		n.join("worker-0", identity.RoleWorker)
		mallory := n.join("mallory", identity.RoleWorker)
		settle(time.Minute)
		log.take()
		conn, err := mallory.OpenStream(n.ctx, "relay-0", streamProtocol)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		s := speak(t, conn)
		if err = s.send(n.ctx, frameHello, hello(0xbad)); err == nil {
			err = s.sendList(n.ctx, bitmap{}, nil)
		}
		sent := 0
		for epoch := uint64(1); err == nil && sent < 25_000; sent += itemsPerFrame {
			var raws [][]byte
			for range itemsPerFrame {
				raws = append(raws, k.signedBy(t, "worker-0", Record{NodeID: "worker-0", Epoch: epoch, Sequence: 1}))
				epoch++
			}
			err = s.send(n.ctx, frameRecords, encoded(t, wireRecords{raws}))
		}
		settle(time.Second)
		if got := relay.count("exchange_cut_offs_total", "bad_records"); got != 1 || sent > 4*itemsPerFrame {
			t.Errorf("%v exchanges are cut off, after %d records", got, sent)
		}
		if text := log.take(); !strings.Contains(text, "peer=mallory") || !strings.Contains(text, "worker-0") {
			t.Errorf("the log does not name the peer and the author:\n%s", text)
		}
	})
}

// All members of a fleet may get new certificates in the same minute, or restart with them. A peer that
// knows them sends all their records, of the last life and of this one.
func TestAPeerThatKnowsTheNewCertificatesOfAWholeFleetIsNotCutOff(t *testing.T) {
	const workers = 2 * maxBadRecords
	p := newListener(t)
	epochs := map[string]uint64{}
	var records []examined
	for i := range workers {
		id := fmt.Sprint("w", i)
		epochs[id], p.keys.unknown[id] = 1, true
		for epoch := uint64(1); epoch <= 2; epoch++ {
			records = append(records, p.examine(p.keys.signedBy(t, id, Record{NodeID: id, Epoch: epoch, Sequence: 1, Services: echo(1)})))
		}
	}
	p.setMembers(snapshotOf(epochs))
	f := &frames{}
	p.mergeAll(records, f)
	if f.dropped > 0 || len(p.unverified.records) != workers {
		t.Errorf("%d records are bad: %v; %d are parked, want %d", f.dropped, f.firstBad, len(p.unverified.records), workers)
	}
	for id := range epochs {
		p.keys.learn(id)
		epochs[id] = 2
	}
	p.setMembers(snapshotOf(epochs))
	if len(p.store.entries) != workers {
		t.Errorf("%d records arrive, want %d", len(p.store.entries), workers)
	}
}

// Those who know only the new certificate could not check the old signature.
func TestARecordIsPublishedAgainWhenItsSignatureIsOfAnOldKey(t *testing.T) {
	signedNetwork(t, nil, func(t *testing.T, n *network, k *keys) {
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, echo(1000))
		settle(5 * time.Minute)
		if sequenceOf(t, worker) != 1 {
			t.Fatalf("sequence %d, want 1", sequenceOf(t, worker))
		}
		k.renew("worker-0")
		settle(turnInterval + 2*time.Second)
		relay := n.join("relay-0", identity.RoleRelay)
		settle(turnInterval)
		if len(endpoints(relay)) != 1 || sequenceOf(t, worker) != 2 {
			t.Errorf("a relay that came later sees %v of sequence %d", endpoints(relay), sequenceOf(t, worker))
		}
	})
}

// Otherwise each member that passes a record on could make a newer one of it.
func TestOneStatementIsOneRecordHoweverItIsFramedAndSigned(t *testing.T) {
	raw, err := full.Encode()
	if err != nil {
		t.Fatal(err)
	}
	said := statementOf(raw)
	plain := withSignature(said, []byte("first"))
	again := withSignature(said, []byte("second"))
	longer := append(slices.Clone(plain), 0xa5, 'l', 'a', 't', 'e', 'r')
	longer[0]++
	wide := slices.Concat([]byte{0xdc, 0, signedFields}, plain[1:])
	var first *entry
	for _, variant := range [][]byte{plain, again, longer, wide} {
		record, signed, err := decodeRecord(variant)
		if err != nil || !bytes.Equal(signed.statement, said) {
			t.Fatalf("% x: statement % x, %v", variant, signed.statement, err)
		}
		e := newEntry(record, variant, signed)
		if first == nil {
			first = e
		}
		if e.stamp != first.stamp || len(e.raw) > len(again) {
			t.Errorf("% x has stamp %v and is kept as %d bytes, want %v and at most %d", variant, e.stamp, len(e.raw), first.stamp, len(again))
		}
		if m, err := decodeMail(gossiped(variant)); err != nil || m.stamp != first.stamp {
			t.Errorf("in the mail % x has stamp %v, %v", variant, m.stamp, err)
		}
	}
}

// The reference is what a store holds that hears the true records only.
func TestAStoreHoldsOnlySignedRecordsDespiteForgeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newKeys("a", "b", "c")
		still := &signedStill{still: newStill("relay"), author: author{k, "relay"}}
		c, err := New(Config{Gossip: still, Now: func() time.Time { return start }})
		if err != nil {
			t.Fatal(err)
		}
		c.setMembers(still.snapshot)
		heard := map[instance][]stamp{}
		for range rapid.IntRange(1, 40).Draw(t, "records") {
			r := Record{NodeID: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "author"), Epoch: 1,
				Sequence: rapid.Uint64Range(1, 6).Draw(t, "sequence"), Services: echo(rapid.IntRange(1, 3).Draw(t, "port"))}
			signer := rapid.SampledFrom([]string{r.NodeID, r.NodeID, "mallory"}).Draw(t, "signer")
			raw := k.signedBy(t, signer, r)
			if signer == r.NodeID {
				_, signed, _ := decodeRecord(raw)
				heard[instance{r.NodeID, 1}] = append(heard[instance{r.NodeID, 1}], stamp{r.Sequence, hashOf(raw, signed)})
			}
			if rapid.Bool().Draw(t, "by gossip") {
				c.receiveGossip(gossiped(raw))
				c.readMail()
			} else {
				c.mergeAll([]examined{c.examine(raw)}, &frames{})
			}
		}
		before := contents(c.store)
		for id := range map[string]bool{"a": true, "b": true, "c": true} {
			if _, there := before[instance{id, 1}]; there {
				t.Fatalf("a record of %s is in the store, and %s is not proven", id, id)
			}
			k.learn(id)
		}
		c.setMembers(snapshotOf(map[string]uint64{"a": 1, "b": 1, "c": 1, "d": 1}))
		got := contents(c.store)
		for key, stamps := range heard {
			// Of an author that was not proven one record waits, and it may be a forgery:
			// then an exchange brings the true one.
			if got[key] != slices.MaxFunc(stamps, stamp.compare) && (key.id == "d" || got[key] != (stamp{})) {
				t.Fatalf("the store has %v of %v, its author said %v", got[key], key, stamps)
			}
		}
		for key, at := range got {
			if !slices.Contains(heard[key], at) {
				t.Fatalf("the store has %v of %v, which its author never said", at, key)
			}
		}
	})
}

// signedStill is still with keys.
type signedStill struct {
	*still
	author
}

func (s *signedStill) Sign(kind membership.Statement, statement []byte) []byte {
	return s.author.Sign(kind, statement)
}

func (s *signedStill) SignedNow(signature []byte) bool { return s.author.SignedNow(signature) }

func (s *signedStill) Verify(id string, kind membership.Statement, statement, signature []byte) error {
	return s.author.Verify(id, kind, statement, signature)
}

// BenchmarkRecordSign and BenchmarkRecordVerify are what a record of one service
// costs its author at each publication and every other member once.
func BenchmarkRecordSign(b *testing.B) {
	k := author{newKeys(), "worker-1"}
	raw, err := full.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = withSignature(statementOf(raw), k.Sign(membership.StatementRecord, statementOf(raw)))
	}
}

func BenchmarkRecordVerify(b *testing.B) {
	k := newKeys()
	still := &signedStill{still: newStill("relay"), author: author{k, "relay"}}
	c, err := New(Config{Gossip: still})
	if err != nil {
		b.Fatal(err)
	}
	raw := k.signedBy(b, full.NodeID, full)
	b.ReportAllocs()
	for b.Loop() {
		if x := c.examine(raw); x.err != nil {
			b.Fatal(x.err)
		}
	}
}
