//go:build linux

package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// What one certificate can make grow: state exchanges, boots, sessions, and answers.

// maxExchanges is what twelve state exchanges may cost a relay.
const maxExchanges = 60 << 20

// state is an instance in a state exchange.
type state struct {
	Name        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Incarnation uint32
	State       int
	Vsn         []uint8
}

const (
	msgPushPull = 6
	stateDead   = 2
)

// exchange is the stream of a state exchange with n dead instances, each with metadata of the
// given size.
func (o *outsider) exchange(n, metadata int) []byte {
	var b bytes.Buffer
	b.Write(append(o.header(), msgPushPull))
	encoder := codec.NewEncoder(&b, &codec.MsgpackHandle{})
	encode := func(v any) {
		if err := encoder.Encode(v); err != nil {
			o.t.Fatal(err) // the types are in this file
		}
	}
	encode(struct {
		Nodes, UserStateLen int
		Join                bool
	}{Nodes: n})
	for i := range n {
		encode(state{Name: fmt.Sprintf("x%d.1", i), Addr: []byte{127, 0, 9, 1}, Port: 1, Meta: make([]byte, metadata), Incarnation: 1, State: stateDead, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
	}
	return b.Bytes()
}

// TestStateExchangesOfAMemberCostNoMemory has a turncoat exchange its states with a relay twelve
// times together. Each exchange has about 60 MB: few states that are large, or as many as a fleet
// could have.
func TestStateExchangesOfAMemberCostNoMemory(t *testing.T) {
	const together = 12
	for _, attack := range []struct {
		name             string
		states, metadata int
	}{{"of large states", 1000, 60_000}, {"of many states", 80_000, 600}, {"of many small states", 80_000, 400}} {
		t.Run(attack.name, func(t *testing.T) {
			f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
			c, r := startTurncoat(t, f), f.Relays[0]
			raw := newSender(t, f, c.packets).exchange(attack.states, attack.metadata)
			before, refused := memory(t, r.PID(), "VmRSS:"), f.refusals(r.Admin)
			begun := time.Now()
			var running sync.WaitGroup
			for range together {
				running.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), procs.Patience)
					defer cancel()
					conn, err := c.node.OpenStream(ctx, r.ID, "ml/1")
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = conn.Close() }()
					_ = conn.SetDeadline(begun.Add(procs.Patience))
					_, _ = conn.Write(raw) // until the relay has enough of it
					_, _ = io.Copy(io.Discard, conn)
				})
			}
			running.Wait()
			grown := memory(t, r.PID(), "VmHWM:") - before
			t.Logf("%d exchanges of %d MB in %v: the relay took %d MiB more than %d MiB", together, len(raw)/1_000_000, time.Since(begun).Round(time.Millisecond), grown>>20, before>>20)
			if grown > maxExchanges {
				t.Errorf("the relay took %d MiB more, at most %d are allowed", grown>>20, maxExchanges>>20)
			}
			if f.refusals(r.Admin) <= refused {
				t.Error("nothing was refused: the attack has not arrived")
			}
			f.serves(10)
		})
	}
}

// boot is a signed announcement that the turncoat lives, in another boot.
func (c *turncoat) boot(o *outsider, epoch uint64) []byte {
	array := &codec.MsgpackHandle{WriteExt: true}
	array.StructToArray = true
	meta := encodeAs(array, metadata{Format: 1, Cluster: cluster, Environment: environment, ID: c.id, Epoch: epoch,
		Role: string(identity.RoleWorker), Version: "forged", GossipAddr: o.addr().String()})
	meta = append(meta, c.node.Sign(membership.Statement("metadata"), meta)...)
	return message(msgAlive, alive{Incarnation: 1, Node: instance{c.id, epoch}.name(), Addr: o.addr().Addr().AsSlice(), Port: o.addr().Port(),
		Meta: meta, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
}

// restarted kills a worker and returns how long it takes from its next start until a relay sends
// it requests.
func (f *fleet) restarted(w *procs.Member, r *relay) time.Duration {
	f.t.Helper()
	w.Kill()
	begun := time.Now()
	f.Start(w, procs.Config{Args: []string{"--drain-delay", "1s", "--service", echo + "=" + f.servers[0].Listener.Addr().String() + ";check=tcp;interval=2s"}})
	procs.Await(f.t, "the restarted worker is a member", func() bool {
		return slices.ContainsFunc(f.listed(r), func(m member) bool { return m.ID == w.ID && m.Epoch >= uint64(begun.UnixMilli()) })
	})
	// The offer of the life before goes with that life, so what is counted from here on is the new one's.
	procs.Await(f.t, "the restarted worker is served", func() bool {
		status, _ := f.ask(r, echo, http.MethodPost, "/")
		return status == http.StatusOK && f.endpoints(r, echo) == len(f.Workers)
	})
	return time.Since(begun)
}

// TestBootsOfOneCertificateExcludeNoMember has a turncoat announce more boots of itself than a
// relay admits members, while an honest worker restarts.
func TestBootsOfOneCertificateExcludeNoMember(t *testing.T) {
	const late = 2 * time.Second
	members, boots := 200, 2_000
	if packets, _ := flood(); packets == 1_000_000 { // LONG_TESTS
		members, boots = 20_000, 22_000
	}
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, RelayArgs: []string{"--max-members", fmt.Sprint(members)}})
	w, r := f.Workers[0], f.Relays[0]
	// The best of three counts, because the machine may stall.
	best := func() time.Duration { return min(f.restarted(w, r), f.restarted(w, r), f.restarted(w, r)) }
	alone := best()
	c := startTurncoat(t, f)
	o := newSender(t, f, c.packets)
	const perPacket = 2
	var packets [][][]byte
	for n := 0; n < boots; n += perPacket {
		var messages [][]byte
		for i := range perPacket {
			messages = append(messages, c.boot(o, c.node.Epoch()+uint64(1+n+i)))
		}
		packets = append(packets, messages)
	}
	c.stop() // else it would follow the later boots itself, and probe them; its session lasts
	excluded := func() float64 {
		return f.metrics(r.Admin, "ringway_membership_refusals_total", func(series string) bool { return strings.Contains(series, "too_many_members") })
	}
	before := f.size(r)
	f.arrives(func() {
		for _, messages := range packets {
			o.send(f.gossipOf(false), messages...)
			time.Sleep(time.Millisecond / 2)
		}
	}, func(*relay) bool { return excluded() > 0 })
	attacked := best()
	t.Logf("a restarted worker is served after %v, under the attack after %v; %v members excluded; %d MiB before, %d MiB under the attack",
		alone.Round(time.Millisecond), attacked.Round(time.Millisecond), excluded(), before.memory>>20, memory(t, r.PID(), "VmRSS:")>>20)
	if attacked > alone+late {
		t.Errorf("a restarted worker is served after %v under the attack, want %v at most", attacked, alone+late)
	}
	f.within(r, before)
	if n := excluded(); n > 0 {
		t.Errorf("%v instances were refused as too many members", n)
	}
	f.wellDuring(watching)
}

// greet exchanges hellos in the name of a boot of the turncoat.
func (c *turncoat) greet(f *fleet, addr, keys string, epoch uint64) error {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTime}, Config: f.Security.TLSConfig(f.t, c.id, "probe/1")}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	hello := []byte("RWY")
	text := func(s string) { hello = append(append(hello, byte(len(s))), s...) }
	text(cluster)
	text(environment)
	hello = append(hello, 2) // the format of members that sign
	text("probe/1")
	text(c.id)
	hello = binary.BigEndian.AppendUint64(hello, epoch)
	text(string(identity.RoleWorker))
	text(keys)
	hello = binary.BigEndian.AppendUint64(hello, uint64(time.Since(c.packets.booted)/time.Microsecond))
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(hello))), hello...)); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(handshakeTime))
	answer := make([]byte, 3)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if answer[2] != 0 {
		return fmt.Errorf("refused: %d", answer[2])
	}
	return nil
}

// TestHandshakesOfOneCertificateMuteNoMember has a turncoat greet a relay in the name of 40 boots:
// twice what a relay with so low a limit remembers.
func TestHandshakesOfOneCertificateMuteNoMember(t *testing.T) {
	t.Parallel()
	const handshakes = 40
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 2, RelayArgs: []string{"--max-members", "10"}})
	c, r, w := startTurncoat(t, f), f.Relays[0], f.Workers[0]
	keyring, err := membership.OpenKeyring(f.Security.Path(c.id + ".keys"))
	if err != nil {
		t.Fatal(err)
	}
	keys := strings.Join(keyring.Fingerprints(), ",")
	for n := range handshakes {
		if err := c.greet(f, r.Gossip, keys, c.node.Epoch()+uint64(1+n)); err != nil {
			t.Fatal(err)
		}
	}
	dropped := func(reason string) float64 {
		return f.metrics(r.Admin, "ringway_membership_packets_dropped_total", func(series string) bool { return strings.Contains(series, strconv.Quote(reason)) })
	}
	t.Logf("the restarted worker is served after %v", f.restarted(w, r).Round(time.Millisecond))
	mute := func() error {
		if n := dropped("too_many"); n > 0 {
			return fmt.Errorf("%v sessions had no room", n)
		}
		return nil
	}
	during(t, 3*watching, func() error { return errors.Join(mute(), f.allThere(), f.served(2)) })
	if n := dropped("too_many_sessions"); n < handshakes-2 {
		t.Errorf("%v sessions were displaced, want %d at least: the attack has not arrived", n, handshakes-2)
	}
}

// TestQuestionsMultiplyNoTraffic has an outsider ask a relay for certificates, as if a victim
// asked: the answers go to the address of the question, which may be forged.
func TestQuestionsMultiplyNoTraffic(t *testing.T) {
	t.Parallel()
	const questions, perQuestion = 10, 40
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3})
	o := newOutsider(t, f)
	var ids [][]byte
	for _, id := range f.ids() {
		pair, err := tls.LoadX509KeyPair(f.Security.Path(id+".crt"), f.Security.Path(id+".key"))
		if err != nil {
			t.Fatal(err)
		}
		key := identity.KeyID(pair.Certificate[0])
		ids = append(ids, key[:])
	}
	to := netip.MustParseAddrPort(f.Relays[0].Gossip)
	for _, attack := range []struct {
		name string
		keys func(n int) []byte // the n-th key of a question
	}{
		{"for the same certificates again and again", func(n int) []byte { return ids[n%len(ids)] }},
		{"for each certificate once", func(n int) []byte { return slices.Concat(ids, make([][]byte, perQuestion))[n] }},
		{"for one certificate", func(n int) []byte { return [][]byte{ids[0], nil}[min(n, 1)] }},
	} {
		t.Run(attack.name, func(t *testing.T) {
			victim, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(procs.FreeAddrOn(t, "127.0.9.4"))))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = victim.Close() }()
			const kindAsk = 2
			body := []byte{kindAsk}
			for n := range perQuestion {
				if key := attack.keys(n); key != nil {
					body = append(append(body, key...), "nonce678"...)
				}
			}
			received, read := 0, make(chan struct{})
			go func() {
				defer close(read)
				buf := make([]byte, 64<<10)
				for {
					n, err := victim.Read(buf)
					if err != nil {
						return
					}
					received += n
				}
			}()
			sent := 0
			head := append(o.header(), 'R', 1)
			for range questions {
				n, err := victim.WriteToUDPAddrPort(o.seal(head, nil, body, head), to)
				if err != nil {
					t.Fatal(err)
				}
				sent += n
				time.Sleep(time.Millisecond) // less than a socket buffer holds
			}
			_ = victim.SetReadDeadline(time.Now().Add(time.Second)) // until the last answers have arrived
			<-read
			t.Logf("%d bytes of questions returned %d bytes: %.1f for each", sent, received, float64(received)/float64(sent))
			if received > 3*sent {
				t.Errorf("%d bytes of questions returned %d bytes, at most 3 for each are allowed", sent, received)
			}
			if received == 0 {
				t.Error("no question was answered: the attack has not arrived")
			}
		})
	}
}
