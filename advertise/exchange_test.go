package advertise

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// still is a gossip network on which nothing happens: members stay, broadcasts
// get lost, streams are opened by the test itself.
type still struct {
	unsigned
	snapshot *membership.Snapshot
	serve    func(context.Context, membership.Peer, net.Conn)
}

func newStill(self string, others ...membership.Member) *still {
	members := append([]membership.Member{{ID: self, Epoch: 1, Role: identity.RoleRelay}}, others...)
	return &still{snapshot: membership.NewSnapshot(1, self, members)}
}

func (s *still) Snapshot() *membership.Snapshot          { return s.snapshot }
func (s *still) Broadcast(byte, string, []byte) error    { return nil }
func (s *still) HandleGossip(byte, func(payload []byte)) {}
func (s *still) Leave(context.Context) error             { return nil }

func (s *still) HandleStream(_ string, h func(context.Context, membership.Peer, net.Conn)) {
	s.serve = h
}
func (s *still) OpenStream(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no member can be reached")
}
func (s *still) Watch(ctx context.Context) <-chan *membership.Snapshot {
	out := make(chan *membership.Snapshot, 1)
	out <- s.snapshot
	context.AfterFunc(ctx, func() { close(out) })
	return out
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// run makes a relay's catalogue that knows the workers and holds the records.
func run(t tester, id string, workers []membership.Member, raws [][]byte) (c *Catalogue, stop func()) {
	t.Helper()
	c, err := New(Config{Gossip: newStill(id, workers...), Now: func() time.Time { return start }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	for known := false; !known; { // the loop takes its snapshot soon
		if err := c.onLoop(ctx, func() { known = c.members != nil }); err != nil {
			t.Fatal(err)
		}
	}
	hold(t, c, raws...)
	return c, func() { cancel(); <-ended }
}

func hold(t tester, c *Catalogue, raws ...[]byte) {
	t.Helper()
	err := c.onLoop(context.Background(), func() {
		for _, raw := range raws {
			_, _, _ = c.merge(c.examine(raw))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// exchange lets a compare its records with b, over a pipe.
func exchange(t tester, a, b *Catalogue) {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		b.serve(context.Background(), membership.Peer{ID: "a", Addr: "pipe"}, theirs)
	}()
	if err := a.runExchange(context.Background(), a.newFrames(outward, membership.Peer{ID: "b", Addr: "pipe"}, ours), a.sync); err != nil {
		t.Fatal(err)
	}
	<-served
}

// visibleRecords are the encoded records of live workers, by id.
func visibleRecords(t tester, c *Catalogue) (out map[string]string, root uint64) {
	t.Helper()
	out = map[string]string{}
	err := c.onLoop(context.Background(), func() {
		root = c.store.root
		for _, m := range c.members.Members() {
			if e, _ := c.store.visible(m.ID); e != nil {
				out[m.ID] = string(e.raw)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, root
}

func TestOneExchangeMakesTwoMembersEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alive := workers(map[string]uint64{"a": 1, "b": 2, "c": 1})
		mine, others := drawRecords(t), drawRecords(t)
		a, stopA := run(t, "r1", alive, mine)
		defer stopA()
		b, stopB := run(t, "r2", alive, others)
		defer stopB()
		all, stopAll := run(t, "r3", alive, append(append([][]byte(nil), mine...), others...))
		defer stopAll()
		want, root := visibleRecords(t, all)

		exchange(t, a, b)
		for name, c := range map[string]*Catalogue{"the initiator": a, "the responder": b} {
			if got, gotRoot := visibleRecords(t, c); fmt.Sprint(got) != fmt.Sprint(want) || gotRoot != root {
				t.Fatalf("%s holds %q, want the newest of both, %q", name, got, want)
			}
		}
		same := testutil.ToFloat64(a.metrics.exchanges.WithLabelValues(outward, resultSame))
		exchange(t, a, b)
		if testutil.ToFloat64(a.metrics.exchanges.WithLabelValues(outward, resultSame)) != same+1 {
			t.Fatal("the members are equal and compared all the same")
		}
	})
}

// constant draws the same number forever.
type constant uint64

func (c constant) Uint64() uint64 { return uint64(c) }

// lookalikes finds two records of one worker whose buckets look alike under the
// salt: by the birthday paradox some hundred thousand tries are enough.
func lookalikes(t *testing.T, salt uint64) (older, newer []byte) {
	t.Helper()
	r := Record{NodeID: "w", Epoch: 1, Sequence: 1 << 40}
	raw, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(raw, binary.BigEndian.AppendUint64(nil, r.Sequence))
	seen := map[uint32][]byte{}
	for range 2_000_000 {
		r.Sequence++
		raw = bytes.Clone(raw)
		binary.BigEndian.PutUint64(raw[at:], r.Sequence)
		short := shorten(newEntry(r, raw, signedPart{}).mix(), salt)
		if older, found := seen[short]; found {
			return older, raw
		}
		seen[short] = raw
	}
	t.Fatal("no two look alike")
	return nil, nil
}

func TestBucketsThatLookAlikeInOneExchangeDoNotInTheNext(t *testing.T) {
	const salt = 42
	older, newer := lookalikes(t, salt)
	alive := workers(map[string]uint64{"w": 1})
	a, stopA := run(t, "r1", alive, [][]byte{older})
	defer stopA()
	b, stopB := run(t, "r2", alive, [][]byte{newer})
	defer stopB()
	for _, round := range []struct {
		salt uint64
		want []byte
	}{{salt, older}, {salt + 1, newer}} {
		if err := b.onLoop(t.Context(), func() { b.random = rand.New(constant(round.salt)) }); err != nil {
			t.Fatal(err)
		}
		exchange(t, a, b)
		if got, _ := visibleRecords(t, a); got["w"] != string(round.want) {
			t.Fatalf("salt %d: the initiator holds %q, want %q", round.salt, got["w"], round.want)
		}
	}
}

func TestDigestsSurviveTheirEncodingAndMarkWhatDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := newStore(storeConfig{}), newStore(storeConfig{})
		var want bitmap
		for i := range buckets {
			one.buckets[i] = rapid.Uint64().Draw(t, "hash")
			if other.buckets[i] = one.buckets[i]; rapid.Bool().Draw(t, "differs") {
				other.buckets[i]++
				want.set(i)
			}
		}
		d := one.digest(rapid.Uint64().Draw(t, "salt"), true)
		got, err := decodeDigest(append(d.encode(), "added by a later build"...))
		if err != nil || got != d {
			t.Fatalf("decoded %+v, %v", got, err)
		}
		if other.differing(got) != want {
			t.Fatalf("marked % x, want % x", other.differing(got), want)
		}
	})
}

// frameBytes is a frame as it goes over the wire.
func frameBytes(kind frameKind, body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(1+len(body)))
	return append(append(out, byte(kind)), body...)
}

// speak is the test's end of an exchange with a catalogue.
func speak(t tester, conn net.Conn) *frames {
	t.Helper()
	c, err := New(Config{Gossip: newStill("mallory")})
	if err != nil {
		t.Fatal(err)
	}
	return c.newFrames(outward, membership.Peer{}, conn)
}

func hello(root uint64) []byte { return binary.BigEndian.AppendUint64(nil, root) }

func TestThirdExchangesAndSecondOnesOfAPeerAreTurnedAway(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		settle(time.Second)
		open := func(peer string) (conn net.Conn, answer frameKind) {
			ours, theirs := net.Pipe()
			n.running.Go(func() { relay.serve(n.ctx, membership.Peer{ID: peer}, theirs) })
			f := speak(t, ours)
			if err := f.send(n.ctx, frameHello, hello(1)); err != nil {
				t.Fatal(err)
			}
			answer, _, err := f.receive(maxFrameBytes)
			if err != nil {
				t.Fatal(err)
			}
			return ours, answer
		}
		first, answer := open("a")
		if answer != frameDigest {
			t.Errorf("the first exchange got frame %d", answer)
		}
		if _, answer := open("a"); answer != frameBusy {
			t.Errorf("the second one of a peer got frame %d, want busy", answer)
		}
		if _, answer := open("b"); answer != frameDigest {
			t.Errorf("the exchange of another peer got frame %d", answer)
		}
		if _, answer := open("c"); answer != frameBusy {
			t.Errorf("the third exchange got frame %d, want busy", answer)
		}
		_ = first.Close()
		synctest.Wait()
		if _, answer := open("c"); answer != frameDigest {
			t.Errorf("when a place was free again the exchange got frame %d", answer)
		}
		if got := relay.count("exchanges_total", resultBusy); got != 2 {
			t.Errorf("%v exchanges counted as turned away, want 2", got)
		}
	})
}

func TestAtMostTwoExchangesRunConcurrentlyAndOneWithEachPeer(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		running, most, with := 0, 0, map[string]int{}
		n.onStream = func(from, to string, change int) {
			if from != "relay-0" {
				return
			}
			running += change
			most = max(most, running)
			if with[to] += change; with[to] > 1 {
				t.Errorf("two exchanges with %s at once", to)
			}
		}
		relay := n.join("relay-0", identity.RoleRelay)
		var mutes []string
		for i := range 6 {
			mute := n.join(fmt.Sprint("mute-", i), identity.RoleWorker)
			mutes = append(mutes, mute.member.ID)
			n.mu.Lock()
			mute.serve = func(_ context.Context, _ membership.Peer, conn net.Conn) {
				_, _ = io.Copy(io.Discard, conn) // until the other end has had enough
			}
			n.mu.Unlock()
		}
		settle(time.Second)
		for range 10 {
			err := relay.catalogue.onLoop(n.ctx, func() {
				relay.catalogue.partners.waiting = append(mutes, mutes...) // more than it would plan by itself
				for epoch := range uint64(4) {                             // and records of one worker
					if key := (instance{mutes[0], epoch}); relay.catalogue.fetches[key] == nil {
						relay.catalogue.fetches[key] = &pendingFetch{}
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			settle(frameTimeout / 2)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if most != maxOutbound {
			t.Errorf("%d exchanges at once, want %d", most, maxOutbound)
		}
		if slow := relay.count("exchanges_total", resultSlow); slow < 6 {
			t.Errorf("%v exchanges with mute peers were given up", slow)
		}
	})
}

// noise makes n workers and records of about 4 kB that hardly compress.
func noise(t tester, n int) (alive []membership.Member, raws [][]byte) {
	t.Helper()
	random, epochs := rand.New(rand.NewPCG(1, 1)), map[string]uint64{}
	for i := range n {
		r := Record{NodeID: fmt.Sprint("w", i), Epoch: 1, Sequence: 1}
		for j := range 4 {
			s := Service{Name: fmt.Sprint("s", j), Address: "h:1"}
			for range maxTags {
				tag := make([]byte, maxTagBytes)
				for k := range tag {
					tag[k] = ' ' + byte(random.UintN('~'-' '+1))
				}
				s.Tags = append(s.Tags, string(tag))
			}
			r.Services = append(r.Services, s)
		}
		raw, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		epochs[r.NodeID], raws = 1, append(raws, raw)
	}
	return workers(epochs), raws
}

func TestExchangesSendNoFasterThanTheRate(t *testing.T) {
	alive, raws := noise(t, 200)
	for _, perSecond := range []int{128 << 10, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			full, err := New(Config{Gossip: newStill("full", alive...), ExchangeRate: perSecond, Now: func() time.Time { return start }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer synctest.Wait()
			defer cancel()
			go func() { _ = full.Run(ctx) }()
			settle(time.Second)
			hold(t, full, raws...)
			empty, stop := run(t, "empty", alive, nil)
			defer stop()

			began := time.Now()
			exchange(t, empty, full)
			took := time.Since(began).Seconds()
			sent := testutil.ToFloat64(full.metrics.bytes.WithLabelValues("sent"))
			if sent < 600_000 {
				t.Fatalf("only %v bytes were sent", sent)
			}
			if want := (sent - sendBurst) / float64(perSecond); took < want*0.999 || took > want*1.1 {
				t.Errorf("%v bytes at %d a second took %.2f s, want %.2f", sent, perSecond, took, want)
			}
			if got, _ := visibleRecords(t, empty); len(got) != len(raws) {
				t.Errorf("%d records arrived, want %d", len(got), len(raws))
			}
		})
	}
	if _, err := New(Config{Gossip: newStill("r1"), ExchangeRate: 1000}); err == nil {
		t.Error("a rate at which the largest record never passes was accepted")
	}
}

func TestTheLargestRecordPassesAtTheLowestRateInTheTimeOfAFrame(t *testing.T) {
	const sharing = maxInbound + maxOutbound
	if limit := frameTimeout.Seconds() * minExchangeRate / sharing; MaxRecordBytes > limit {
		t.Errorf("a record of %d bytes, %v pass", MaxRecordBytes, limit)
	}
}

func TestFramesAreDeflatedWhereThatPays(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	defer func() { _ = theirs.Close() }()
	sender, receiver := speak(t, ours), speak(t, theirs)
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	wire := 0.0
	for _, test := range []struct {
		name   string
		body   []byte
		atMost float64
	}{
		{"an empty body", nil, 5},
		{"a short one", bytes.Repeat([]byte("x"), deflateFrom-1), deflateFrom + 4},
		{"one that repeats itself", bytes.Repeat([]byte("ringway "), 4096), 200},
		{"one without a pattern", noise, 4096 + 5},
	} {
		sent := make(chan error, 1)
		go func() { sent <- sender.send(t.Context(), frameRecords, test.body) }()
		kind, got, err := receiver.receive(maxFrameBytes)
		if err := errors.Join(err, <-sent); err != nil || kind != frameRecords || !bytes.Equal(got, test.body) {
			t.Fatalf("%s: %d bytes of kind %d arrived, %v", test.name, len(got), kind, err)
		}
		before := wire
		wire = testutil.ToFloat64(receiver.counter.WithLabelValues("received"))
		if wire-before > test.atMost {
			t.Errorf("%s took %v bytes on the wire, want at most %v", test.name, wire-before, test.atMost)
		}
	}
}
