//go:build linux

package hostile

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
)

// forwarder is a stranger on the way to a member: the others know the member by the
// forwarder's address. It passes on packets and streams, and keeps the packets.
type forwarder struct {
	addr, to string
	conn     *net.UDPConn

	mu      sync.Mutex
	packets [][]byte
}

// keptPackets bounds the recording: the newest are kept.
const keptPackets = 4096

// forward starts a forwarder to a gossip address. A packet that comes from a member goes
// on from the forwarder's own socket.
func forward(t *testing.T, to string) *forwarder {
	t.Helper()
	f := &forwarder{addr: procs.FreeAddrOn(t, "127.0.9.2"), to: to}
	var err error
	if f.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(f.addr))); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(f.passPackets)
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { f.passStream(conn) })
		}
	})
	t.Cleanup(func() { _ = f.conn.Close(); _ = listener.Close(); running.Wait() })
	return f
}

func (f *forwarder) passPackets() {
	to := netip.MustParseAddrPort(f.to)
	buf := make([]byte, 64<<10)
	for {
		n, _, err := f.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.packets = append(f.packets, slices.Clone(buf[:n]))
		f.packets = f.packets[max(0, len(f.packets)-keptPackets):]
		f.mu.Unlock()
		_, _ = f.conn.WriteToUDPAddrPort(buf[:n], to)
	}
}

// passStream ends when either side does; members bound their streams.
func (f *forwarder) passStream(in net.Conn) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", f.to)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}

// recorded are the packets until now.
func (f *forwarder) recorded() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.packets)
}

// TestRecordedPacketsBringNoDeadMemberBack has a stranger record what went to a relay,
// and play it again when another relay is dead and forgotten: memberlist keeps the dead
// for 30 seconds, and takes for news what it hears of them afterwards.
func TestRecordedPacketsBringNoDeadMemberBack(t *testing.T) {
	t.Parallel()
	const forgotten = 36 * time.Second
	var way *forwarder
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Advertised: func(gossip string) string {
		way = forward(t, gossip)
		return way.addr
	}})
	dead := f.Relays[1]
	dead.Kill()
	recorded := way.recorded() // of the life of the dead only
	f.Relays = f.Relays[:1]
	procs.Await(t, "the dead relay is gone", func() bool { return !slices.Contains(f.IDs(f.Relays[0]), dead.ID) })
	replay := func() {
		for _, packet := range recorded {
			for _, to := range f.gossipOf(true) {
				_, _ = way.conn.WriteToUDPAddrPort(packet, netip.MustParseAddrPort(to))
			}
			time.Sleep(time.Millisecond / 10) // as fast as a socket buffer takes them
		}
	}
	t.Logf("%d packets were recorded", len(recorded))
	keepDoing(t, replay)
	during(t, forgotten, func() error {
		if got := f.IDs(f.Relays[0]); slices.Contains(got, dead.ID) {
			return fmt.Errorf("the dead relay is back: %v", got)
		}
		return nil
	})
	f.wellDuring(time.Second)
}

// contents are the messages in a signed packet, nil for a packet of another kind.
func (o *outsider) contents(packet []byte) [][]byte {
	head := append(o.header(), 'R', 1)
	n := o.aead.NonceSize()
	if !bytes.HasPrefix(packet, head) || len(packet) < len(head)+n {
		return nil
	}
	body, err := o.aead.Open(nil, packet[len(head):][:n], packet[len(head)+n:], head)
	const times = 1 + 6 + 6 // kind, boot, time
	if err != nil || len(body) < times+membership.MaxSignature || body[0] != 1 {
		return nil
	}
	plain := body[times : len(body)-membership.MaxSignature]
	if len(plain) > 5 && plain[0] == msgCRC {
		plain = plain[5:]
	}
	return split(plain)
}

// TestReplayedGoodbyesAndRecordsOfAWorkerChangeNothing has a turncoat, which has the gossip key, read
// what a worker signed while it was drained and when it left, and send it again in packets of its
// own, after the worker has come back.
func TestReplayedGoodbyesAndRecordsOfAWorkerChangeNothing(t *testing.T) {
	t.Parallel()
	var way *forwarder
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Advertised: func(gossip string) string {
		way = forward(t, gossip)
		return way.addr
	}})
	c, w := startTurncoat(t, f), f.Workers[0]
	o := newSender(t, f, c.packets)
	f.drain(w, true)
	f.drain(w, false)
	w.Signal(t, syscall.SIGTERM)
	if code := w.Exit(t); code != 0 {
		t.Fatalf("the worker ended with %d", code)
	}
	var signed [][]byte
	goodbyes := 0
	for _, packet := range way.recorded() {
		for _, m := range o.contents(packet) {
			if len(m) < 4 || m[0] != msgUser || !bytes.Contains(m, []byte(w.ID)) {
				continue
			}
			if m[2] == topicLeave {
				goodbyes++
			} else if m[2] != recordTopic {
				continue
			}
			if !slices.ContainsFunc(signed, func(s []byte) bool { return bytes.Equal(s, m) }) {
				signed = append(signed, m)
			}
		}
	}
	if goodbyes == 0 || len(signed) < 3 {
		t.Fatalf("%d goodbyes were recorded, and %d statements of the worker: this test would prove nothing", goodbyes, len(signed))
	}
	f.Start(w, procs.Config{Args: []string{"--drain-delay", "1s", "--service", echo + "=" + f.servers[0].Listener.Addr().String() + ";check=tcp;interval=2s"}})
	procs.Await(t, "the worker is back", func() bool { return f.allThere() == nil })
	old := f.received(f.Relays[1], "old")
	keepDoing(t, func() {
		for _, m := range signed {
			o.send(f.gossipOf(true), m)
		}
	})
	procs.Await(t, "the replayed statements arrive", func() bool { return f.received(f.Relays[1], "old") > old+20 })
	f.wellDuring(watching)
}

// announcements are what a member announced about itself in recorded packets: each once, by the
// incarnation at which it did.
func (o *outsider) announcements(recorded [][]byte, of string) map[uint32]alive {
	all := map[uint32]alive{}
	for _, packet := range recorded {
		for _, m := range o.contents(packet) {
			var a alive
			if len(m) == 0 || m[0] != msgAlive || codec.NewDecoderBytes(m[1:], &codec.MsgpackHandle{}).Decode(&a) != nil || a.Node != of {
				continue
			}
			all[a.Incarnation] = a
		}
	}
	return all
}

// TestOldAnnouncementsOfAWorkerChangeNothing has a turncoat replay what a worker announced about
// itself while it was drained, as it was and at later incarnations, after it is back in rotation.
func TestOldAnnouncementsOfAWorkerChangeNothing(t *testing.T) {
	t.Parallel()
	var way *forwarder
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Advertised: func(gossip string) string {
		way = forward(t, gossip)
		return way.addr
	}})
	c, w := startTurncoat(t, f), f.instances("w1")[0]
	o := newSender(t, f, c.packets)
	draining := func() (relays int) { // that show the worker so
		for _, r := range f.Relays {
			if slices.ContainsFunc(f.listed(r), func(m member) bool { return m.ID == w.id && m.Draining }) {
				relays++
			}
		}
		return relays
	}
	f.drain(f.Workers[0], true)
	procs.Await(t, "all relays show the worker as draining", func() bool { return draining() == len(f.Relays) })
	f.drain(f.Workers[0], false)
	procs.Await(t, "no relay shows the worker as draining", func() bool { return draining() == 0 })
	all := o.announcements(way.recorded(), w.name())
	newest := slices.Max(slices.Collect(maps.Keys(all)))
	// That of the drain. A refutation of a suspicion has the Meta of the announcement before.
	incarnations := slices.Sorted(maps.Keys(all))
	i := len(incarnations) - 1
	for i >= 0 && bytes.Equal(all[incarnations[i]].Meta, all[newest].Meta) {
		i--
	}
	if i < 0 {
		t.Fatalf("of the worker, the incarnations %v were recorded: this test would prove nothing", incarnations)
	}
	old := all[incarnations[i]]
	refused := func() float64 {
		return f.metrics(f.Relays[1].Admin, "ringway_membership_packets_dropped_total", nil)
	}
	before, at := refused(), newest
	keepDoing(t, func() {
		at++
		replay := old
		replay.Incarnation = at
		o.send(f.gossipOf(false), message(msgAlive, old), message(msgAlive, replay))
	})
	looks, wrong := 0, 0
	for end := time.Now().Add(watching); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		looks++
		if draining() > 0 {
			wrong++
		}
	}
	t.Logf("a relay showed the worker as draining at %d of %d looks; %v packets and messages were refused", wrong, looks, refused()-before)
	if wrong > 0 || refused() < before+20 {
		t.Error("old announcements are believed, or did not arrive")
	}
	f.wellDuring(time.Second)
}
