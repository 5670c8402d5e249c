package advertise

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// fleet is a relay, a worker that offers echo, and mallory: a member that was
// admitted like every other one and then sends what it likes. All three are real
// membership nodes on a network in memory, under a virtual clock.
type fleet struct {
	t             *testing.T
	ctx           context.Context
	relay, worker *speaker
	mallory       *membership.Node

	mu    sync.Mutex
	reply func(conn net.Conn) // mallory's answer to the next exchange that is opened with it
}

type speaker struct {
	node      *membership.Node
	catalogue *Catalogue
	log       *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was logged since the last call.
func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// hostile runs a test in a fleet whose members have found each other.
func hostile(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(memnet.Config{Seed: 1, Latency: time.Millisecond})
		ctx, cancel := context.WithCancel(context.Background())
		f := &fleet{t: t, ctx: ctx}
		var running sync.WaitGroup
		member := func(id string, role identity.Role, ip string) *membership.Node {
			node, err := membership.New(membership.Config{
				Cluster: "test", Environment: "ci", ID: id, Role: role, BindAddr: ip + ":7400",
				Seeds: []string{"10.0.0.1:7400"}, Network: network.Host(ip),
			})
			if err != nil {
				t.Fatal(err)
			}
			return node
		}
		run := func(node *membership.Node, err error) {
			if err == nil {
				err = node.Start(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		speak := func(id string, role identity.Role, ip string) *speaker {
			s := &speaker{node: member(id, role, ip), log: &lockedBuffer{}}
			c, err := New(Config{Gossip: s.node, Logger: slog.New(slog.NewTextHandler(s.log, nil))})
			s.catalogue = c
			run(s.node, err)
			running.Go(func() { _ = c.Run(ctx) })
			return s
		}
		f.relay = speak("relay", identity.RoleRelay, "10.0.0.1")
		f.worker = speak("worker", identity.RoleWorker, "10.0.0.2")
		f.mallory = member("mallory", identity.RoleWorker, "10.0.0.3")
		f.mallory.HandleStream(streamProtocol, func(_ context.Context, _ membership.Peer, conn net.Conn) {
			f.mu.Lock()
			reply := f.reply
			f.reply = nil
			f.mu.Unlock()
			if reply != nil {
				reply(conn)
			}
		})
		run(f.mallory, nil)
		if err := f.worker.catalogue.Offer(echo(1000)); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if got := f.relay.catalogue.View().Endpoints("echo"); got.count != 1 || len(f.mallory.Snapshot().Members()) != 3 {
			t.Fatalf("the relay sees %v", got)
		}
		f.relay.log.take()
		f.worker.log.take()

		test(t, f)

		cancel()
		running.Wait()
		for _, node := range []*membership.Node{f.relay.node, f.worker.node, f.mallory} {
			_ = node.Close()
		}
		_ = network.Close()
		time.Sleep(10 * time.Minute) // memberlist's last probes end
	})
}

// attack is one way to misbehave.
type attack struct {
	name   string
	reason string // what it is counted and logged as
	// send plays it, on a stream that an honest member reads from; errors are how
	// it learns that it was cut off.
	send func(conn net.Conn)
	most uint64 // bytes it may make an honest member take; 0 is little
}

// sends is an attack by bytes that are made beforehand.
func sends(name, reason string, parts ...[]byte) attack {
	all := bytes.Join(parts, nil)
	return attack{name: name, reason: reason, send: func(conn net.Conn) { _, _ = conn.Write(all) }}
}

// bomb is a frame that inflates to n zeros.
func bomb(kind frameKind, n int64) []byte {
	return squeezed(kind, io.LimitReader(zeros{}, n))
}

func squeezed(kind frameKind, body io.Reader) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = io.Copy(w, body)
	_ = w.Close()
	return frameBytes(kind|deflated, b.Bytes())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// trickle sends bytes one by one, so slowly that no read of one ever times out.
func trickle(b []byte, pause time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			for i := range b {
				if _, err := conn.Write(b[i : i+1]); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}
	}
}

func repeat(b []byte, pause time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			if _, err := conn.Write(b); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// strange is a root that no member has, so that an exchange continues.
var strange = frameBytes(frameHello, hello(0xbad))

// unharmed checks that an attack changed nothing and left nothing behind.
func (f *fleet) unharmed(what string, before *View) {
	f.t.Helper()
	after := f.relay.catalogue.View()
	if after.Checksum() != before.Checksum() || fmt.Sprint(after.Endpoints("echo")) != fmt.Sprint(before.Endpoints("echo")) || after.EndpointCount() != before.EndpointCount() {
		f.t.Errorf("%s changed the catalogue: %+v", what, after.Endpoints("echo"))
	}
	// The members' own exchanges with each other take some milliseconds of the virtual
	// clock: one may be under way now, and is over at the next look.
	var left string
	for range 3 {
		if left = exchangeUnderWay(); left == "" {
			return
		}
		settle(time.Second)
	}
	f.t.Errorf("%s left a goroutine behind in %s", what, left)
}

// exchangeUnderWay is the side of an exchange in which a goroutine runs, or "".
func exchangeUnderWay() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, side := range []string{"serve", "open"} {
		if bytes.Contains(stacks, []byte("advertise.(*Catalogue)."+side+"(")) {
			return side
		}
	}
	return ""
}

// little is the memory that most attacks may make an honest member take, in all
// that is allocated: far less than any of them claims or unfolds to.
const little = 8 << 20

// play runs an attack and checks that it ended as it must.
func (f *fleet) play(direction string, a attack, begin func()) {
	f.t.Helper()
	c := f.relay.catalogue
	before, counted := c.View(), testutil.ToFloat64(c.metrics.cutOffs.WithLabelValues(a.reason))
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	began := time.Now()
	begin()
	cut := func() bool { return testutil.ToFloat64(c.metrics.cutOffs.WithLabelValues(a.reason)) > counted }
	for !cut() && time.Since(began) <= exchangeTimeout {
		settle(time.Second)
	}
	settle(time.Second)
	runtime.ReadMemStats(&is)

	what := a.name + " (" + direction + ")"
	if !cut() {
		f.t.Errorf("%s was not counted as %s within the time of an exchange", what, a.reason)
	}
	log := f.relay.log.take()
	for _, want := range []string{"level=WARN", "peer=mallory", "addr=10.0.0.3:", "direction=" + direction, "reason=" + a.reason} {
		if !strings.Contains(log, want) {
			f.t.Errorf("%s: no %s in the log:\n%s", what, want, log)
		}
	}
	if taken := is.TotalAlloc - was.TotalAlloc; taken > cmp.Or(a.most, little) {
		f.t.Errorf("%s took %d bytes", what, taken)
	}
	f.unharmed(what, before)
}

func TestAHostileInitiatorIsCutOffAndNamedAndChangesNothing(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		list := frameBytes(frameList, encoded(t, wireList{Buckets: make([]byte, buckets/8)}))
		end := frameBytes(frameEnd, nil)
		long := squeezed(frameList, bytes.NewReader(encoded(t, wireList{make([]byte, buckets/8), slices.Repeat([]wireListed{{"x", 1, 1, 1}}, itemsPerFrame)})))
		for _, a := range []attack{
			sends("a frame of 1 GB", "frame_size", []byte{0x40, 0, 0, 0, byte(frameHello)}),
			sends("a frame without a kind", "frame_size", make([]byte, 5)),
			sends("a first frame of 64 kB", "frame_size", frameBytes(frameHello, make([]byte, 64<<10))),
			sends("a frame of no kind", "out_of_turn", frameBytes(99, nil)),
			sends("records as the first frame", "out_of_turn", frameBytes(frameRecords, []byte{0x91, 0x90})),
			sends("another hello in place of a list", "out_of_turn", strange, strange),
			sends("half a hello", "malformed", frameBytes(frameHello, make([]byte, 7))),
			sends("what is not compressed but says so", "malformed", frameBytes(frameHello|deflated, []byte("no"))),
			sends("a want of 4 billion", "endless", frameBytes(frameWant, []byte{0x91, 0xdd, 0xff, 0xff, 0xff, 0xff})),
			sends("a list of a million", "endless", strange, frameBytes(frameList, append([]byte{0x92, 0xc4, 0, 0xdd, 0, 0x0f, 0x42, 0x40}, make([]byte, 4096)...))),
			sends("a list nested half a million deep", "malformed", strange, frameBytes(frameList, bytes.Repeat([]byte{0x91}, maxFrameBytes-1))),
			sends("an id of a kilobyte", "node_id", strange, frameBytes(frameList, encoded(t, wireList{make([]byte, buckets/8), []wireListed{{NodeID: strings.Repeat("x", 1024)}}}))),
			sends("a bomb as the first frame", "bomb", bomb(frameHello, 64<<10)),
			sends("a bomb of 16 MB", "bomb", strange, bomb(frameList, 16<<20)),
			sends("a record of a megabyte", "frame_size", strange, list, end, frameBytes(frameRecords, make([]byte, 1<<20))),
			sends("a record larger than any", "too_large", strange, list, end, frameBytes(frameRecords, encoded(t, wireRecords{[][]byte{make([]byte, MaxRecordBytes+1)}}))),
			{name: "endless records that are none", reason: "bad_records", send: func(conn net.Conn) {
				_, _ = conn.Write(slices.Concat(strange, list, end))
				nothing := append([]byte{0x91, 0xdc, itemsPerFrame >> 8, 0}, bytes.Repeat([]byte{0xa0}, itemsPerFrame)...)
				repeat(squeezed(frameRecords, bytes.NewReader(nothing)), 0)(conn)
			}},
			{name: "endless lists", reason: "endless", send: func(conn net.Conn) { _, _ = conn.Write(strange); repeat(list, 0)(conn) }},
			{name: "a list of millions", reason: "endless", most: 48 << 20, send: func(conn net.Conn) { _, _ = conn.Write(strange); repeat(long, 0)(conn) }},
			sends("silence", resultSlow),
			{name: "a trickle of bytes", reason: resultSlow, send: trickle(frameBytes(frameHello, make([]byte, 512)), time.Second)},
			{name: "a trickle of frames", reason: resultSlow, send: func(conn net.Conn) { _, _ = conn.Write(strange); repeat(list, frameTimeout/2)(conn) }},
		} {
			f.play(inward, a, func() {
				conn, err := f.mallory.OpenStream(f.ctx, "relay", streamProtocol)
				if err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
				go a.send(conn)
			})
		}
	})
}

func TestAHostileResponderIsCutOffAndNamedAndChangesNothing(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		digests := frameBytes(frameDigest, make([]byte, digestBytes))
		want := frameBytes(frameWant, encoded(t, wireWant{[]wireInstance{{"worker", f.worker.node.Epoch()}}}))
		long := squeezed(frameWant, bytes.NewReader(encoded(t, wireWant{slices.Repeat([]wireInstance{{"x", 1}}, itemsPerFrame)})))
		for _, a := range []attack{
			sends("a frame of 1 GB", "frame_size", []byte{0x40, 0, 0, 0, byte(frameSame)}),
			sends("half a digest", "malformed", frameBytes(frameDigest, make([]byte, digestBytes-1))),
			sends("a hello in answer to a hello", "out_of_turn", strange),
			sends("a bomb of 16 MB", "bomb", bomb(frameDigest, 16<<20)),
			sends("a digest in place of records", "out_of_turn", digests, digests),
			{name: "endless wants", reason: "endless", send: func(conn net.Conn) { _, _ = conn.Write(digests); repeat(want, 0)(conn) }},
			{name: "a want of millions", reason: "endless", most: 48 << 20, send: func(conn net.Conn) { _, _ = conn.Write(digests); repeat(long, 0)(conn) }},
			sends("silence", resultSlow),
			{name: "a trickle of bytes", reason: resultSlow, send: trickle(digests, time.Second)},
			{name: "a trickle of frames", reason: resultSlow, send: func(conn net.Conn) { _, _ = conn.Write(digests); repeat(want, frameTimeout/2)(conn) }},
		} {
			f.mu.Lock()
			f.reply = func(conn net.Conn) {
				go a.send(conn)
				_, _ = io.Copy(io.Discard, conn) // until the relay has had enough
			}
			f.mu.Unlock()
			f.play(outward, a, func() {
				if err := f.relay.catalogue.onLoop(f.ctx, func() { f.relay.catalogue.partners.add("mallory") }); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// give lets mallory send records to a member, in an exchange that is otherwise
// as it should be.
func (f *fleet) give(to string, records ...[]byte) {
	f.t.Helper()
	conn, err := f.mallory.OpenStream(f.ctx, to, streamProtocol)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	s := speak(f.t, conn)
	send := func(err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	await := func(want frameKind) {
		for {
			kind, _, err := s.receive(maxFrameBytes)
			if err != nil {
				f.t.Fatal(err)
			}
			if kind == want {
				return
			}
		}
	}
	send(s.send(f.ctx, frameHello, hello(0xbad)))
	await(frameDigest)
	send(s.sendList(f.ctx, bitmap{}, nil))
	await(frameEnd)
	send(s.sendRecords(f.ctx, records))
	send(s.send(f.ctx, frameEnd, nil))
	await(frameEnd)
	settle(5 * time.Second)
}

func TestBadRecordsOfAPeerAreDroppedAndNamedAndTheRestIsKept(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		record := func(r Record) []byte {
			raw, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return raw
		}
		c := f.relay.catalogue
		received := func(result string) float64 { return testutil.ToFloat64(c.metrics.received.WithLabelValues(result)) }
		before := c.View()
		tenYears := uint64(time.Now().AddDate(10, 0, 0).UnixMilli())
		for reason, raw := range map[string][]byte{
			"services":     append([]byte{0x95, 1, 0xa1, 'w', 1, 1, 0xdd, 0x00, 0x0f, 0x42, 0x40}, make([]byte, 20_000)...), // 1,000,000 of them
			"future_epoch": record(Record{NodeID: "worker", Epoch: tenYears, Sequence: 1, Services: echo(666)}),
			"malformed":    {0x95, 1},
			"format":       {0x95, 2, 0xa1, 'w', 1, 1, 0x90},
		} {
			was := received("invalid_" + reason)
			f.give("relay", raw, raw)
			if received("invalid_"+reason) != was+2 {
				t.Errorf("%s: not counted", reason)
			}
			log := f.relay.log.take()
			for _, want := range []string{"level=WARN", "peer=mallory", "addr=10.0.0.3:", "records=2", "reason=" + reason} {
				if !strings.Contains(log, want) {
					t.Errorf("%s: no %s in the log:\n%s", reason, want, log)
				}
			}
			f.unharmed("a record with bad "+reason, before)
		}

		// Lives of other members that membership knows nothing of are kept for
		// later, and seen by no member.
		for _, r := range []Record{
			{NodeID: "worker", Epoch: f.worker.node.Epoch() + 1, Sequence: 9, Services: echo(666)},
			{NodeID: "worker", Epoch: f.worker.node.Epoch() - 1, Sequence: 9, Services: echo(666)},
			{NodeID: "relay", Epoch: f.relay.node.Epoch(), Sequence: 9, Services: echo(666)},
			{NodeID: "ghost", Epoch: 1, Sequence: 9, Services: echo(666)},
		} {
			f.give("relay", record(r))
			f.unharmed(fmt.Sprintf("a record of %s in life %d", r.NodeID, r.Epoch), before)
		}
		f.give("relay", []byte{0x95, 1}, record(Record{NodeID: "mallory", Epoch: f.mallory.Epoch(), Sequence: 1, Services: echo(2000)}))
		if got := c.View().Endpoints("echo"); got.count != 2 {
			t.Errorf("the good record behind a bad one is lost: %v", got)
		}
	})
}

func TestRecordsWithoutEndAreCutOff(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		c, before := f.relay.catalogue, f.relay.catalogue.View()
		var known []byte // what the relay holds already, so that nothing is gossiped on
		if err := c.onLoop(f.ctx, func() { e, _ := c.store.visible("worker"); known = e.raw }); err != nil {
			t.Fatal(err)
		}
		was := testutil.ToFloat64(c.metrics.received.WithLabelValues(string(old)))
		conn, err := f.mallory.OpenStream(f.ctx, "relay", streamProtocol)
		if err != nil {
			t.Fatal(err)
		}
		s := speak(t, conn)
		again := encoded(t, wireRecords{slices.Repeat([][]byte{known}, itemsPerFrame)})
		err = s.send(f.ctx, frameHello, hello(0xbad))
		if err == nil {
			err = s.sendList(f.ctx, bitmap{}, nil)
		}
		go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		for err == nil {
			err = s.send(f.ctx, frameRecords, again)
		}
		settle(time.Second)
		if got := testutil.ToFloat64(c.metrics.cutOffs.WithLabelValues("endless")); got != 1 {
			t.Errorf("not cut off as endless; the peer got %v", err)
		}
		if got := testutil.ToFloat64(c.metrics.received.WithLabelValues(string(old))) - was; got > maxItems || got < maxItems/2 {
			t.Errorf("%v records were merged, want some %d and no more", got, maxItems)
		}
		f.unharmed("records without end", before)
	})
}

func TestWhoForgesARecordIsNamedAndItsOwnerWins(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		forged, err := Record{NodeID: "worker", Epoch: f.worker.node.Epoch(), Sequence: 70, Services: echo(666)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(f.relay.catalogue.View().Endpoints("echo"))
		f.give("worker", forged)
		if got := testutil.ToFloat64(f.worker.catalogue.metrics.received.WithLabelValues(string(foreign))); got != 1 {
			t.Errorf("%v forged records counted, want 1", got)
		}
		if log := f.worker.log.take(); !strings.Contains(log, "in the name of this node") || !strings.Contains(log, "peer=mallory addr=10.0.0.3:") {
			t.Errorf("the worker does not name who forged its record:\n%s", log)
		}
		// What the relay is made to believe it unlearns as soon as the worker hears
		// of it: the exchange's news are gossiped on.
		forged, err = Record{NodeID: "worker", Epoch: f.worker.node.Epoch(), Sequence: 700, Services: echo(666)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		f.give("relay", forged)
		for c, want := range map[*Catalogue]string{f.relay.catalogue: before, f.worker.catalogue: before} {
			if got := fmt.Sprint(c.View().Endpoints("echo")); got != want {
				t.Errorf("%v are visible, want %v", got, want)
			}
		}
		if got := f.worker.catalogue.own.sequence; got != 701 {
			t.Errorf("the worker's sequence is %d, want 701", got)
		}
	})
}

func TestAFloodOfOffencesIsCountedAndLoggedALineASecond(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		const flood = 200
		before := f.relay.catalogue.View()
		for range flood {
			conn, err := f.mallory.OpenStream(f.ctx, "relay", streamProtocol)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte{0x40, 0, 0, 0, byte(frameHello)})
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
		settle(time.Second)
		if got := testutil.ToFloat64(f.relay.catalogue.metrics.cutOffs.WithLabelValues("frame_size")); got != flood {
			t.Errorf("%v of %d offences counted", got, flood)
		}
		if lines := strings.Count(f.relay.log.take(), "cut off"); lines < logBurst || lines > 2*logBurst {
			t.Errorf("%d lines about %d offences within a second or two", lines, flood)
		}
		f.unharmed("a flood", before)
	})
}

func TestAMemberThatOpensEndlessStreamsHoldsFewAndDelaysNoOther(t *testing.T) {
	hostile(t, func(t *testing.T, f *fleet) {
		const flood = handshake.MaxSilent + 40
		before := f.relay.catalogue.View()
		for range flood {
			conn, err := f.mallory.OpenStream(f.ctx, "relay", streamProtocol)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
		synctest.Wait()
		if held := f.relay.catalogue.inbound.silent.Len(); held != handshake.MaxSilentPerPeer {
			t.Errorf("%d streams wait for their first frame, want %d", held, handshake.MaxSilentPerPeer)
		}
		if got := testutil.ToFloat64(f.relay.catalogue.metrics.cutOffs.WithLabelValues("silent")); got != flood-handshake.MaxSilentPerPeer {
			t.Errorf("%v silent streams were closed for newer ones, want %d", got, flood-handshake.MaxSilentPerPeer)
		}
		// The worker is not turned away in the meantime.
		synced := func() float64 {
			return testutil.ToFloat64(f.relay.catalogue.metrics.exchanges.WithLabelValues(inward, resultSame))
		}
		was := synced()
		if err := f.worker.catalogue.onLoop(f.ctx, func() { f.worker.catalogue.partners.add("relay") }); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if synced() <= was { // its own turn may come in the same second
			t.Error("the worker could not compare its records with the relay")
		}
		settle(2 * frameTimeout)
		f.unharmed("a flood of streams", before)
		f.give("relay", nil...)
	})
}

// brittle panics when it checks the records of one author.
type brittle struct {
	*signedStill
	author string
}

func (b brittle) Verify(id string, kind membership.Statement, statement, signature []byte) error {
	if id == b.author {
		panic("no certificate of " + id)
	}
	return b.signedStill.Verify(id, kind, statement, signature)
}

func TestARecordThatPanicsIsDroppedWithTheNameOfItsAuthorAndOthersAreTaken(t *testing.T) {
	k := newKeys()
	log := &logtest.Log{}
	still := brittle{&signedStill{still: newStill("relay"), author: author{k, "relay"}}, "b"}
	c, err := New(Config{Gossip: still, Now: func() time.Time { return start }, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	c.setMembers(snapshotOf(map[string]uint64{"a": 1, "b": 1, "c": 1}))
	record := func(id string) []byte {
		return k.signedBy(t, id, Record{NodeID: id, Epoch: 1, Sequence: 1, Services: echo(1)})
	}
	for _, id := range []string{"a", "b"} {
		c.receiveGossip(gossiped(record(id)))
	}
	c.readMail()
	c.mergeAll([]examined{c.examine(record("b")), c.examine(record("c"))}, &frames{})

	if n := testutil.ToFloat64(c.metrics.received.WithLabelValues("invalid_panic")); n != 2 {
		t.Errorf("%v records are counted that panic, want 2", n)
	}
	held := contents(c.store)
	for id, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, got := held[instance{id, 1}]; got != want {
			t.Errorf("the record of %s is stored: %v, want %v", id, got, want)
		}
	}
	for _, want := range []string{"node=b", "no certificate of b", "brittle.Verify"} { // the last is from the stack
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}
