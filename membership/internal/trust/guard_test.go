package trust

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// wire connects guards without sockets: a packet arrives immediately, or is lost when
// no guard has its destination.
type wire struct {
	t         testing.TB
	authority *identity.Authority
	guards    map[string]*guarded // by address
}

// guarded is a guard and what memberlist would have seen.
type guarded struct {
	*Guard
	who       identity.Claims
	delivered [][]byte // without the label
	sent      [][]byte
}

func newWire(t testing.TB) *wire {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 10 * 365 * 24 * time.Hour, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &wire{t: t, authority: a, guards: make(map[string]*guarded)}
}

// setup is what a test changes of a member.
type setup struct {
	identity.Claims
	Config
}

// withKey gives a member one gossip key, which has a number.
func withKey(n int) func(*setup) {
	key := sha256.Sum256([]byte{byte(n)})
	return func(s *setup) {
		s.PrimaryKey, s.Keys = func() []byte { return key[:] }, func() [][]byte { return [][]byte{key[:]} }
	}
}

// member adds a member. Change may be nil.
func (w *wire) member(id string, change func(*setup)) *guarded {
	w.t.Helper()
	counter := func(reasons []string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "n"}, []string{"reason"})
		metric.StartAtZero(c, reasons...)
		return c
	}
	s := setup{
		Claims: identity.Claims{Cluster: "test", Environment: "ci", Node: id, Role: identity.RoleWorker},
		Config: Config{
			MaxMembers: 1000, MaxNewMembers: 100, Dropped: counter(DropReasons()), Unproven: counter(UnprovenReasons()),
			AddrOf: func(string) string { return "" }, Answered: func(string, uint64, string) {},
			Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
		},
	}
	if change != nil {
		change(&s)
	}
	s.Label = s.Cluster + "/" + s.Environment
	if s.Identity == nil {
		source, err := w.authority.Source(s.Claims, 365*24*time.Hour)
		if err != nil {
			w.t.Fatal(err)
		}
		s.Identity = source
	}
	m := &guarded{who: s.Claims, Guard: New(context.Background(), s.Config)}
	m.epoch = uint64(time.Now().UnixMilli())
	m.self = gossip.InstanceName(id, m.epoch)
	m.addr = fmt.Sprintf("10.0.0.%d:7400", len(w.guards)+1)
	m.send = func(packet []byte, to string) {
		m.sent = append(m.sent, packet)
		if other := w.guards[to]; other != nil {
			other.Receive(packet, m.addr)
		}
	}
	m.deliver = func(packet []byte, _ string) { m.delivered = append(m.delivered, packet[len(m.header):]) }
	w.guards[m.addr] = m
	return m
}

// wrapped is a packet of m for another member, as it is on the wire, with any payload.
func (m *guarded) wrapped(t testing.TB, payload []byte, to string) []byte {
	t.Helper()
	packet, err := m.wrapPayload(payload, to)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func (m *guarded) dropped(reason string) int {
	return int(testutil.ToFloat64(m.cfg.Dropped.WithLabelValues(reason)))
}

// alive is memberlist's message about a member, with what change makes of it.
func (m *guarded) alive(t testing.TB, change func(*gossip.Metadata, *gossip.Alive)) []byte {
	t.Helper()
	description := gossip.Metadata{
		Format: gossip.MetadataFormat, Cluster: m.who.Cluster, Environment: m.who.Environment, ID: m.who.Node, Epoch: m.epoch,
		Role: string(m.who.Role), GossipAddr: m.addr,
	}
	host, port, _ := net.SplitHostPort(m.addr)
	a := gossip.Alive{Incarnation: 1, Node: m.self, Addr: net.ParseIP(host).To4(), Vsn: []uint8{1, 5, 2, 0, 0, 0}}
	_, _ = fmt.Sscan(port, &a.Port)
	if change != nil {
		change(&description, &a)
	}
	if a.Meta == nil {
		body, err := description.Encode(MaxSignature)
		if err != nil {
			t.Fatal(err)
		}
		a.Meta = append(body, m.proofs.sign(statementMetadata, body)...)
	}
	return gossip.Encode(gossip.KindAlive, &a)
}

func compound(parts ...[]byte) []byte {
	out := []byte{gossip.KindCompound, byte(len(parts))}
	for _, p := range parts {
		out = append(out, byte(len(p)>>8), byte(len(p)))
	}
	return append(out, bytes.Join(parts, nil)...)
}

// acquainted is a pair with a session each way.
func (w *wire) acquainted(a, b *guarded) {
	w.t.Helper()
	ping := []byte{gossip.KindPing, 0x80}
	b.Receive(a.wrapped(w.t, ping, b.addr), a.addr)
	b.sendRequests()
	a.Receive(b.wrapped(w.t, ping, a.addr), b.addr)
	a.sendRequests()
	if len(a.delivered) != 1 || len(b.delivered) != 1 {
		w.t.Fatalf("not acquainted: %d and %d packets came through", len(a.delivered), len(b.delivered))
	}
	a.delivered, b.delivered = nil, nil
}

func TestASenderIsBelievedOnceItHasShownThatItLives(t *testing.T) {
	for name, keys := range map[string]bool{"with a gossip key": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				var ring func(*setup)
				if keys {
					ring = withKey(1)
				}
				a, b := w.member("a", ring), w.member("b", ring)
				payload := []byte{gossip.KindUser, 1, 2, 3}
				b.Receive(a.wrapped(t, payload, b.addr), a.addr)
				if len(b.delivered) != 0 {
					t.Fatal("a packet of an unknown sender came through")
				}
				if next, _ := b.sendRequests(); next <= 0 {
					t.Errorf("next question in %v", next)
				}
				if len(b.delivered) != 1 || !bytes.Equal(b.delivered[0], payload) {
					t.Fatalf("after the sender has answered: %x", b.delivered)
				}
				b.Receive(a.wrapped(t, payload, b.addr), a.addr)
				if len(b.delivered) != 2 || len(b.requested) != 0 {
					t.Errorf("the next packet: %d delivered, %d questions open", len(b.delivered), len(b.requested))
				}
				if c, err := b.proofs.certificate(identity.KeyID(a.cfg.Identity.Chain()[0])); err != nil || c.Claims.Node != "a" {
					t.Errorf("the certificate of the sender: %v, %v", c, err)
				}
			})
		})
	}
}

func TestAPacketCountsOnceAndOnlyWhereItWasSentTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a, b, c := w.member("a", nil), w.member("b", nil), w.member("c", nil)
		w.acquainted(a, b)
		w.acquainted(a, c)
		packet := a.wrapped(t, []byte{gossip.KindUser, 1}, b.addr)
		for range 3 {
			b.Receive(packet, a.addr)
		}
		if len(b.delivered) != 1 || b.dropped(dropReplayed) != 2 {
			t.Errorf("at its destination: %d times, %d dropped as replayed", len(b.delivered), b.dropped(dropReplayed))
		}
		c.Receive(packet, a.addr)
		if len(c.delivered) != 0 || c.dropped(dropSignature) != 1 {
			t.Errorf("elsewhere: %d delivered, %d dropped for the signature", len(c.delivered), c.dropped(dropSignature))
		}
		damaged := bytes.Clone(a.wrapped(t, []byte{gossip.KindUser, 1}, b.addr))
		damaged[len(damaged)-MaxSignature-1] ^= 1
		b.Receive(damaged, a.addr)
		if len(b.delivered) != 1 || b.dropped(dropSignature) != 1 {
			t.Error("a damaged packet came through")
		}
	})
}

func TestPacketsMayOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a, b := w.member("a", nil), w.member("b", nil)
		w.acquainted(a, b)
		var packets [][]byte
		for i := range keptTicks {
			packets = append(packets, a.wrapped(t, []byte{gossip.KindUser, byte(i)}, b.addr))
		}
		for i := range packets {
			b.Receive(packets[len(packets)-1-i], a.addr)
		}
		if len(b.delivered) != keptTicks {
			t.Errorf("%d of %d came through", len(b.delivered), keptTicks)
		}
	})
}

func TestADelayedPacketCountsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a, b := w.member("a", nil), w.member("b", nil)
		w.acquainted(a, b)
		held := a.wrapped(t, []byte{gossip.KindUser, 1}, b.addr)
		time.Sleep(maxDelay + time.Second)
		b.Receive(held, a.addr)
		b.sendRequests() // a lives and answers; the packet stays old
		if len(b.delivered) != 0 || b.dropped(dropStale) != 1 {
			t.Errorf("%d delivered, %d dropped as stale", len(b.delivered), b.dropped(dropStale))
		}
		b.Receive(a.wrapped(t, []byte{gossip.KindUser, 2}, b.addr), a.addr)
		if len(b.delivered) != 1 {
			t.Error("the sender is not believed any more")
		}
	})
}

func TestARecordingOfADeadMemberBringsNothingBackAtARestartedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a, b := w.member("a", nil), w.member("b", nil)
		w.acquainted(a, b)
		recorded := a.wrapped(t, a.alive(t, nil), b.addr)
		delete(w.guards, a.addr)
		time.Sleep(32 * time.Second)
		b.Receive(recorded, a.addr)
		restarted := w.member("b", nil)
		restarted.addr = b.addr
		restarted.Receive(recorded, a.addr)
		for range requestAttempts + 1 {
			for _, m := range []*guarded{b, restarted} {
				m.sendRequests()
			}
			time.Sleep(maxRequestInterval)
		}
		if len(b.delivered)+len(restarted.delivered) != 0 {
			t.Errorf("delivered: %d at the member that knew it, %d at the restarted one", len(b.delivered), len(restarted.delivered))
		}
		if len(restarted.requested) != 0 || restarted.packets != 0 {
			t.Errorf("unanswered questions are kept: %d, with %d packets", len(restarted.requested), restarted.packets)
		}
	})
}

func TestAClockThatDriftsCostsAQuestionAndNoPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a, b := w.member("a", nil), w.member("b", nil)
		w.acquainted(a, b)
		a.booted = a.booted.Add(time.Hour) // a's time stands still for an hour
		a.tick.Store(0)
		w.guards[b.addr].sessions[sessionKey{identity.KeyID(a.cfg.Identity.Chain()[0]), a.epoch}].floor = 0
		time.Sleep(2 * time.Hour)
		b.Receive(a.wrapped(t, []byte{gossip.KindUser, 1}, b.addr), a.addr)
		b.sendRequests()
		if len(b.delivered) != 1 {
			t.Errorf("%d delivered after the question", len(b.delivered))
		}
	})
}

func TestMemberlistSeesNothingThatIsNotProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, honest, victim := w.member("by", nil), w.member("honest", nil), w.member("victim", nil)
		to := w.member("to", nil)
		for _, m := range []*guarded{by, honest, victim} {
			w.acquainted(m, to)
		}
		if got := to.hears(t, victim, victim.alive(t, nil)); len(got) != 1 { // a goodbye is forged only where its subject is known
			t.Fatal("the victim is not known")
		}
		good := honest.alive(t, nil)
		for _, c := range []struct {
			name   string
			bad    []byte
			reason string
		}{
			{"unsigned metadata", by.alive(t, func(_ *gossip.Metadata, a *gossip.Alive) { a.Meta = []byte("x") }), dropUnproven},
			{"another member's name", by.alive(t, func(m *gossip.Metadata, a *gossip.Alive) {
				m.ID, m.Epoch = "victim", victim.epoch+1
				a.Node = gossip.InstanceName("victim", victim.epoch+1)
			}), dropUnproven},
			{"another address than it signed", victim.alive(t, func(_ *gossip.Metadata, a *gossip.Alive) { a.Port = 666 }), dropUnproven},
			{"another role than certified", by.alive(t, func(m *gossip.Metadata, _ *gossip.Alive) { m.Role = string(identity.RoleRelay) }), dropUnproven},
			{"a boot in the future", by.alive(t, func(m *gossip.Metadata, a *gossip.Alive) {
				m.Epoch = 9999999999999
				a.Node = gossip.InstanceName("by", m.Epoch)
			}), dropUnproven},
			{"an incarnation above all that is possible", victim.alive(t, func(_ *gossip.Metadata, a *gossip.Alive) { a.Incarnation = 1<<32 - 1 }), dropIncarnation},
			{"a death with such an incarnation", gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: 1<<32 - 1, Node: victim.self, From: by.self}), dropIncarnation},
			{"a suspicion with such an incarnation", gossip.Encode(gossip.KindSuspect, &gossip.Doubt{Incarnation: 1<<31 + 1, Node: victim.self, From: by.self}), dropIncarnation},
			{"a goodbye of another", gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: 1, Node: victim.self, From: victim.self}), DropForged},
			{"a name that is none", gossip.Encode(gossip.KindDead, &gossip.Doubt{Incarnation: 1, Node: "\x1b[31m", From: by.self}), dropIncarnation},
			{"a compressed message", []byte{9, 1, 2, 3}, DropMessageFormat},
			{"a compound in a compound in a compound", compound(compound(good)), DropMessageFormat},
			{"garbage", append([]byte{gossip.KindAlive}, "garbage"...), DropMessageFormat},
		} {
			to.delivered = nil
			before := to.dropped(c.reason)
			for i, payload := range [][]byte{c.bad, compound(c.bad), compound(good, c.bad, good)} {
				to.Receive(by.wrapped(t, payload, to.addr), by.addr)
				if i < 2 && len(to.delivered) != 0 {
					t.Fatalf("%s: delivered: %x", c.name, to.delivered)
				}
			}
			if want := compound(good, good); len(to.delivered) != 1 || !bytes.Equal(to.delivered[0], want) {
				t.Errorf("%s: of the rest came through:\n%x, want\n%x", c.name, to.delivered, want)
			}
			if to.dropped(c.reason) < before+3 {
				t.Errorf("%s: %d counted as %s, want 3", c.name, to.dropped(c.reason)-before, c.reason)
			}
		}
		if list := to.proofs.list(); len(list) < 3 || !strings.Contains(fmt.Sprint(list), "clock") {
			t.Errorf("listed: %+v", list)
		}
	})
}

func TestTheCertificateOfAThirdMemberIsRequestedFromItsAnnouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		third, teller, to := w.member("third", nil), w.member("teller", nil), w.member("to", nil)
		w.acquainted(third, teller)
		w.acquainted(teller, to)
		delete(w.guards, third.addr) // it cannot be reached itself
		news := third.alive(t, nil)
		to.Receive(teller.wrapped(t, news, to.addr), teller.addr)
		if len(to.delivered) != 0 || !strings.Contains(fmt.Sprint(to.proofs.list()), "third") {
			t.Fatalf("before the certificate is known: %d delivered, listed %v", len(to.delivered), to.proofs.list())
		}
		to.sendRequests()
		if len(to.delivered) != 1 || !bytes.Equal(to.delivered[0], news) {
			t.Fatalf("after: %x", to.delivered)
		}
		if len(to.proofs.list()) != 0 || to.parked != 0 {
			t.Errorf("left over: %v, %d parked", to.proofs.list(), to.parked)
		}
	})
}

func TestWithoutTheGossipKeyNothingGetsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a := w.member("a", withKey(2))
		plain := w.member("p", nil)
		b := w.member("b", withKey(1))
		for _, m := range []*guarded{a, plain} {
			b.Receive(m.wrapped(t, []byte{gossip.KindUser}, b.addr), m.addr)
			question, _ := m.seal(append([]byte{packetAsk}, make([]byte, 16)...))
			b.Receive(question, m.addr)
		}
		if len(b.delivered)+len(b.requested)+len(b.sent) != 0 || b.dropped(dropSeal) != 4 {
			t.Errorf("%d delivered, %d asked, %d sent, %d dropped", len(b.delivered), len(b.requested), len(b.sent), b.dropped(dropSeal))
		}
		b.Receive(append(bytes.Clone(b.header), gossip.KindUser, 1, 2), a.addr)
		if b.dropped(dropUnsigned) != 1 {
			t.Error("an unsigned packet is not counted")
		}
	})
}

func TestAFloodOfStrangersIsBoundedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		a, b := w.member("a", nil), w.member("b", nil)
		packet := a.wrapped(t, make([]byte, 1200), b.addr)
		key := packet[len(packet)-MaxSignature:][:keyIDSize]
		for range 100_000 {
			_, _ = rand.Read(key)
			b.Receive(packet, "10.6.6.6:666")
		}
		if len(b.requested) > maxStrangers || b.packets > 2*maxStrangers*maxParkedPackets || len(b.sessions) != 0 {
			t.Errorf("%d questions, %d packets, %d sessions", len(b.requested), b.packets, len(b.sessions))
		}
		for range 10_000 {
			next, _ := b.sendRequests()
			if time.Sleep(next); len(b.requested) == 0 {
				break
			}
		}
		if len(b.requested) != 0 || b.packets != 0 || b.strangerRequests != 0 {
			t.Errorf("left behind: %d questions, %d packets, %d strangers", len(b.requested), b.packets, b.strangerRequests)
		}
		w.acquainted(a, b)
	})
}

func TestAMemberMayReportALimitedNumberOfUnprovenOnesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		for _, limit := range []int{3, 7} {
			by, to := w.member("by", nil), w.member("to", func(s *setup) { s.MaxNewMembers = limit })
			w.acquainted(by, to)
			tell := func(from int) {
				for i := range 10 {
					m := w.member(fmt.Sprintf("m%d", from+i), nil)
					to.Receive(by.wrapped(t, m.alive(t, nil), to.addr), by.addr)
				}
			}
			tell(0)
			if to.parked != limit || to.dropped(dropTooMany) != 10-limit {
				t.Errorf("limit %d: %d wait, %d dropped", limit, to.parked, to.dropped(dropTooMany))
			}
			time.Sleep(61 * time.Second)
			tell(10)
			if to.dropped(dropTooMany) != 2*(10-limit) {
				t.Errorf("limit %d, a minute later: %d dropped", limit, to.dropped(dropTooMany))
			}
		}
	})
}
