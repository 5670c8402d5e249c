package membership

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership/identity"
)

// fromFiles gives a member certificates that a test can replace, and a deny list.
// The returned function writes a new certificate and takes it up.
func fromFiles(t *testing.T, a *identity.Authority, c *Config) (renew func(services ...string), deny func(line string)) {
	t.Helper()
	dir := t.TempDir()
	files := identity.Files{
		Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
		Authorities: filepath.Join(dir, "ca.pem"), Denied: filepath.Join(dir, "denied"),
	}
	claims := claimsOf(c)
	write := func(path string, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func() {
		cert, key, err := a.Issue(claims, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		write(files.Certificate, cert)
		write(files.Key, key)
	}
	issue()
	write(files.Authorities, a.CertificatePEM())
	write(files.Denied, nil)
	source, err := identity.NewSource(files, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c.Identity = source
	reload := func() {
		if replaced, err := source.Reload(); err != nil || !replaced {
			t.Fatalf("reload: %v, %v", replaced, err)
		}
	}
	renew = func(services ...string) {
		var err error
		if claims.Services, err = identity.ParseServiceNames(services...); err != nil {
			t.Fatal(err)
		}
		issue()
		reload()
	}
	deny = func(line string) { write(files.Denied, []byte(line+"\n")); reload() }
	return renew, deny
}

// happens waits for a state that no snapshot shows.
func happens(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func TestARenewedCertificateIsTakenUpWithoutLeavingTheView(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	var renew func(services ...string)
	w := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		renew, _ = fromFiles(t, a, c)
	})
	seed.await(t, "w1", sees("r1", "w1"))
	gone := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(gone)
		for s := range seed.Watch(ctx) {
			if !sees("r1", "w1")(s) {
				t.Errorf("while the certificate was renewed the seed saw %v", s.Members())
			}
		}
	}()
	for range 2 {
		renew()
		key := identity.KeyID(w.cfg.Identity.Chain()[0])
		happens(t, "the seed knows the renewed certificate", func() bool {
			seed.proofs.mu.Lock()
			defer seed.proofs.mu.Unlock()
			return seed.proofs.instances[instanceName("w1", w.Epoch())].key == key
		})
	}
	cancel()
	<-gone
}

// A new certificate of a live member changes its service names in all views, its own too, and
// nothing else.
func TestServiceNamesFollowTheCertificate(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	var renew func(services ...string)
	w := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		renew, _ = fromFiles(t, a, c)
	})
	born := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w2", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		certified(t, a, c, func(claims *identity.Claims) { claims.Services = "billing" })
	})
	nodes := []*testNode{seed, w, born}
	named := func(id string, want string) func(*Snapshot) bool {
		return func(s *Snapshot) bool {
			m, ok := s.Get(id)
			return ok && m.ServiceNames == want
		}
	}
	for _, n := range nodes {
		n.await(t, "w1 without names", named("w1", ""))
		n.await(t, "w2 with the names of its start", named("w2", "billing"))
	}
	before, _ := seed.Snapshot().Get("w1")
	for _, services := range [][]string{{"echo"}, {"b", "a-*"}, {"*"}, nil} {
		renew(services...)
		want, _ := identity.ParseServiceNames(services...)
		for _, n := range nodes {
			n.await(t, "w1 with "+string(want), named("w1", want))
		}
	}
	if after, _ := seed.Snapshot().Get("w1"); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestADeniedMemberLeavesTheViewAndIsNamed(t *testing.T) {
	a := authority(t)
	var deny func(string)
	seed := start(t, func(c *Config) { c.ID = "r1"; _, deny = fromFiles(t, a, c); c.Keyring = keyring(t, 1) })
	for _, id := range []string{"w1", "w2"} {
		start(t, func(c *Config) {
			c.ID, c.Role, c.Seeds, c.Keyring = id, identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
			certified(t, a, c, nil)
		})
	}
	seed.await(t, "both", sees("r1", "w1", "w2"))
	deny("node w1")
	seed.await(t, "w2 only", sees("r1", "w2"))
	list := seed.Unproven()
	if len(list) != 1 || list[0].ID != "w1" || !strings.Contains(list[0].Reason, "den") {
		t.Errorf("listed: %+v", list)
	}
	happens(t, "its packets are dropped", func() bool {
		return testutil.ToFloat64(seed.metrics.dropped.WithLabelValues(dropCertificate)) > 0
	})
	// The view is published before the event is counted.
	happens(t, "it is counted once", func() bool {
		return testutil.ToFloat64(seed.metrics.events.WithLabelValues("unproven")) == 1
	})
}

func TestAMemberOfAReleaseThatDoesNotSignIsNamedAndLeftOut(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	cfg := Config{
		Cluster: "test", Environment: "ci", ID: "old", Role: identity.RoleWorker, BindAddr: "127.0.0.1:0", Seeds: []string{seed.Addr()},
		Keyring: keyring(t, 1), Logger: slog.New(slog.DiscardHandler),
	}
	certified(t, a, &cfg, nil)
	old, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	greet := old.transport.hello
	old.transport.hello = func() hello { h := greet(); h.format = helloFormat; return h }
	if err := old.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	happens(t, "the old member is listed", func() bool { return len(seed.Unproven()) > 0 })
	if u := seed.Unproven()[0]; u.ID != "old" || !strings.Contains(u.Reason, "upgrade it") {
		t.Errorf("listed: %+v", u)
	}
	happens(t, "the old member learns why", func() bool {
		err := old.Status().Err
		return err != nil && strings.Contains(err.Error(), `ours "1 (gossip is not signed)", theirs "2 (gossip is signed)"`)
	})
	if !sees("r1")(seed.Snapshot()) {
		t.Errorf("the seed sees %v", seed.Snapshot().Members())
	}
}

func TestNoMoreMembersAreLetInThanTheLimitAllows(t *testing.T) {
	for _, limit := range []int{2, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			seed := start(t, func(c *Config) { c.ID, c.MaxMembers = "r1", limit })
			for _, id := range []string{"w1", "w2"} {
				start(t, func(c *Config) { c.ID, c.Role, c.Seeds = id, identity.RoleWorker, []string{seed.Addr()} })
				if id == "w1" {
					seed.await(t, "the first", sees("r1", "w1"))
				}
			}
			if limit == 3 {
				seed.await(t, "all", sees("r1", "w1", "w2"))
				return
			}
			happens(t, "the third is refused", func() bool {
				return testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, fieldTooMany)) > 0
			})
			if !sees("r1", "w1")(seed.Snapshot()) {
				t.Errorf("the seed sees %v", seed.Snapshot().Members())
			}
		})
	}
}

// Without certificates a holder of the gossip key can claim that another member is
// leaving; that member contradicts.
func TestAMemberThatIsReportedToLeaveAnnouncesThatItStays(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1" })
	w := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{seed.Addr()} })
	liar := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{seed.Addr()} })
	for _, n := range []*testNode{seed, w, liar} {
		n.await(t, "all", sees("r1", "r2", "w1"))
	}
	leaving := func(s *Snapshot) bool { m, _ := s.Get("w1"); return m.Leaving }
	if err := liar.announce(leaveNotice{id: "w1", epoch: w.Epoch()}); err != nil {
		t.Fatal(err)
	}
	happens(t, "w1 contradicts", func() bool { return strings.Contains(w.log.String(), "forged notice that this node is leaving") })
	// Either notice may arrive first, so a view may show w1 as leaving for a moment. A second
	// later none does.
	for range 2 {
		for _, n := range []*testNode{seed, w, liar} {
			n.await(t, "w1 staying", func(s *Snapshot) bool { return !leaving(s) })
		}
		time.Sleep(time.Second)
	}
}

func TestALeaveNoticeThatItsAuthorDidNotSignChangesNothing(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil) })
	var others []*testNode
	for _, id := range []string{"w1", "w2"} {
		others = append(others, start(t, func(c *Config) {
			c.ID, c.Role, c.Seeds = id, identity.RoleWorker, []string{seed.Addr()}
			certified(t, a, c, nil)
		}))
	}
	seed.await(t, "all", sees("r1", "w1", "w2"))
	forged := leaveNotice{id: "w1", epoch: others[0].Epoch()}
	payload := forged.payload()
	for _, signature := range [][]byte{nil, make([]byte, MaxSignature), others[1].Sign(statementLeave, payload), others[0].Sign(statementStay, payload)} {
		forged.signature = signature
		before := testutil.ToFloat64(seed.metrics.dropped.WithLabelValues(dropForged))
		seed.receiveNotice(append(forged.payload(), signature...), false)
		happens(t, "the notice is counted", func() bool {
			return testutil.ToFloat64(seed.metrics.dropped.WithLabelValues(dropForged)) > before
		})
	}
	if m, _ := seed.Snapshot().Get("w1"); m.Leaving {
		t.Error("the forged goodbye was believed")
	}
	seed.receiveNotice(append(forged.payload(), others[0].Sign(statementLeave, payload)...), false)
	seed.await(t, "its own goodbye", func(s *Snapshot) bool { m, _ := s.Get("w1"); return m.Leaving })
}

// BenchmarkSignedPacket is what one packet of gossip costs its sender and its
// receiver together: signature, seal, session, inspection.
func BenchmarkSignedPacket(b *testing.B) {
	for _, keys := range []identity.KeyType{identity.Ed25519, identity.ECDSAP256} {
		b.Run(string(keys), func(b *testing.B) {
			w := newWire(b)
			key := func(c *Config) {
				k, err := NewKeyring(testKey(1))
				if err != nil {
					b.Fatal(err)
				}
				c.Keyring = k
				cert, private, err := w.authority.IssueKey(keys, claimsOf(c), time.Hour)
				if err == nil {
					c.Identity, err = identity.NewStaticSource(identity.PEM{Certificate: cert, Key: private, Authorities: w.authority.CertificatePEM()}, identity.SourceConfig{})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			from, to := w.member("a", key), w.member("b", key)
			w.acquainted(from, to)
			payload := compound(from.alive(b, nil), append([]byte{messageUser}, make([]byte, 400)...))
			b.ReportAllocs()
			for b.Loop() {
				to.delivered = to.delivered[:0]
				to.receive(from.wrapped(b, payload, to.addr), from.addr)
				if len(to.delivered) != 1 {
					b.Fatal("dropped")
				}
			}
		})
	}
}

// BenchmarkProveMember is what a member costs that was never heard of: the check of
// its certificate and of its metadata.
func BenchmarkProveMember(b *testing.B) {
	w := newWire(b)
	member, to := w.member("a", nil), w.member("b", nil)
	var a aliveMessage
	if err := to.decode(member.alive(b, nil)[1:], &a); err != nil {
		b.Fatal(err)
	}
	chain := member.cfg.Identity.Chain()
	b.ReportAllocs()
	for b.Loop() {
		p := newProofs(to.cfg)
		if _, err := p.learn(chain); err != nil {
			b.Fatal(err)
		}
		if _, err := p.prove(announced{name: a.Node, addr: addrPort(a.Addr, a.Port), metadata: a.Meta}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzGuardedPacket feeds a member bodies of packets as a holder of the gossip key
// could send them. Nothing of them may reach memberlist.
func FuzzGuardedPacket(f *testing.F) {
	w := newWire(f)
	a, b := w.member("a", nil), w.member("b", nil)
	w.acquainted(a, b)
	f.Add([]byte{packetAsk, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add(appendChain([]byte{packetCertificate}, a.cfg.Identity.Chain()))
	for _, sent := range append(a.sent, a.wrapped(f, []byte{messageUser}, b.addr)) {
		f.Add(sent[len(b.header)+2:])
	}
	b.receive(a.sent[0], a.addr) // known from here on
	f.Fuzz(func(t *testing.T, body []byte) {
		b.delivered = nil
		sealed, err := b.seal(body)
		if err != nil {
			t.Fatal(err)
		}
		b.receive(sealed, "10.6.6.6:666")
		if len(b.delivered) > 0 && body[0] != packetGossip {
			t.Fatalf("%x reached memberlist", body)
		}
		if b.packets > 2*maxStrangers*maxParkedPackets || len(b.requested) > maxStrangers+b.limits.members {
			t.Fatalf("%d packets and %d questions are kept", b.packets, len(b.requested))
		}
	})
}

// FuzzInspectedMessage feeds a member what a proven one could send: whatever passes
// is made of whole messages that were sent, and passes again.
func FuzzInspectedMessage(f *testing.F) {
	w := newWire(f)
	a, b := w.member("a", nil), w.member("b", nil)
	w.acquainted(a, b)
	alive := a.alive(f, nil)
	f.Add(alive)
	f.Add(compound(alive, []byte{messageUser, 1}, encodeMessage(messageDead, &doubtMessage{1, a.self, a.self})))
	f.Add(append([]byte{messageChecksum, 0, 0, 0, 0}, alive...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		kept := b.inspect(payload, announcer{"a", a.addr})
		// A doubt is encoded again, with the names of all its fields.
		if len(kept) > len(payload)*16 {
			t.Fatalf("%x became longer: %x", payload, kept)
		}
		if again := b.inspect(kept, announcer{"a", a.addr}); string(again) != string(kept) {
			t.Fatalf("%x was kept and then became %x", kept, again)
		}
	})
}

// stream is a connection whose other end has sent all that it will.
type stream struct {
	net.Conn
	in *bytes.Reader
}

func (s stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// exchanged is a stream of memberlist that carries states.
func exchanged(t testing.TB, label []byte, states ...pushPullState) []byte {
	t.Helper()
	var b bytes.Buffer
	b.Write(label)
	b.WriteByte(messagePushPull)
	encoder := codec.NewEncoder(&b, &codec.MsgpackHandle{})
	if err := encoder.Encode(&pushPullHeader{Nodes: len(states), Join: true}); err != nil {
		t.Fatal(err)
	}
	for i := range states {
		if err := encoder.Encode(&states[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func (m *guarded) state(t testing.TB) pushPullState {
	t.Helper()
	var a aliveMessage
	if err := m.decode(m.alive(t, nil)[1:], &a); err != nil {
		t.Fatal(err)
	}
	return pushPullState{Name: a.Node, Addr: a.Addr, Port: a.Port, Meta: a.Meta, Incarnation: 1, Vsn: a.Vsn}
}

func TestMemberlistReadsOnlyProvenStatesFromAStream(t *testing.T) {
	w := newWire(t)
	by, victim, to := w.member("by", nil), w.member("victim", nil), w.member("to", nil)
	w.acquainted(by, to)
	w.acquainted(victim, to)
	own, forged, dead, wrapped, left := by.state(t), victim.state(t), victim.state(t), victim.state(t), victim.state(t)
	left.State = stateLeft
	forged.Port = 666
	dead.State = 2
	wrapped.State, wrapped.Incarnation = 2, 1<<32-1
	other := victim.state(t) // its death is news only at a member that knows it
	for _, labelled := range []bool{true, false} {
		var label []byte
		if labelled {
			label = to.header
		}
		raw := exchanged(t, label, own, forged, other, dead, left, wrapped)
		c := &inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.guard, by: announcer{"by", by.addr}, labelled: labelled}
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		kept := dead
		kept.Meta = nil // memberlist does not use it
		if want := exchanged(t, label, own, other, kept); !bytes.Equal(got, want) {
			t.Errorf("labelled %v: memberlist reads\n%x, want\n%x", labelled, got, want)
		}
	}
	if to.dropped(dropIncarnation) != 2 || to.dropped(dropUnproven) != 2 {
		t.Errorf("%d dropped for the incarnation, %d unproven", to.dropped(dropIncarnation), to.dropped(dropUnproven))
	}
}

// FuzzInspectedStream feeds a member a stream of a proven one that lies.
func FuzzInspectedStream(f *testing.F) {
	w := newWire(f)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	dead := by.state(f)
	dead.State = 2
	f.Add(exchanged(f, nil, by.state(f)))
	f.Add(exchanged(f, nil, by.fullState(f), dead, by.state(f)))
	f.Add([]byte{messagePing, 0x81})
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := &inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: to.guard, by: announcer{"by", by.addr}}
		got, err := io.ReadAll(c)
		if err == nil && len(raw) > 0 && (len(got) == 0 || raw[0] != messagePushPull && !bytes.Equal(got, raw)) {
			t.Fatalf("of %x memberlist reads %x", raw, got)
		}
		if err != nil || len(raw) == 0 || raw[0] != messagePushPull {
			return
		}
		states, err := received(got)
		if err != nil {
			t.Fatalf("of %x memberlist reads %x: %v", raw, got, err)
		}
		for _, s := range states {
			name, addr := s.Name, addrPort(s.Addr, s.Port)
			if s.State != stateAlive && len(s.Meta) > 0 || len(s.Meta) > memberlist.MetaMaxSize ||
				s.State == stateAlive && name != to.self && (to.proofs.addr(name) != addr || !bytes.Equal(to.proofs.instances[name].metadata, s.Meta)) {
				t.Fatalf("of %x memberlist reads the state %+v", raw, s)
			}
		}
	})
}

// A length on a stream is only a promise, of a member that was taken over perhaps.
func TestALengthThatIsOnlyPromisedTakesNoMemory(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	for _, raw := range []string{
		"\x06\x81\xa1x\xc9\xe5\xff\xff\xff\xff", // an extension: a time
		"\x06\x81\xa1x\xc6\xff\xff\xff\xff",
		"\x06\x81\xa5Nodes\xdb\xff\xff\xff\xff",
		"\x06\xdf\xff\xff\xff\xff",
		"\x06\xdd\xff\xff\xff\xff",
		"\x00\x81\xa4Node\xdb\xff\xff\xff\xff",
		"\x02\x81\xa7Payload\xc9\xe5\xff\xff\xff\xff",
		"\x0d" + strings.Repeat("\x91", 10_000), // values in values
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader([]byte(raw))}, guard: to.guard, by: announcer{"by", by.addr}})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%.20q passes", raw)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%.20q takes %d bytes", raw, took)
		}
	}
	if n := to.dropped(dropMessageFormat); n != 8 {
		t.Errorf("%d streams dropped, want 8", n)
	}
}

// What memberlist itself sends passes as it is, whatever the form of its values.
func TestValuesOfAStreamPassUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]any{
			"number": rapid.Int64().Draw(t, "number"), "unsigned": rapid.Uint64().Draw(t, "unsigned"),
			"text": rapid.StringN(0, -1, 40_000).Draw(t, "text"), "bytes": rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"),
			"list": rapid.SliceOfN(rapid.Float64(), 0, 300).Draw(t, "list"), "none": nil, "yes": rapid.Bool().Draw(t, "yes"),
			"map": rapid.MapOfN(rapid.Uint16(), rapid.Float32(), 0, 40).Draw(t, "map"),
		}
		var message, got bytes.Buffer
		if err := codec.NewEncoder(&message, &codec.MsgpackHandle{WriteExt: rapid.Bool().Draw(t, "new forms")}).Encode(value); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(io.MultiReader(bytes.NewReader(message.Bytes()), strings.NewReader("next")))
		if err := copyValue(&got, in, 0); err != nil || !bytes.Equal(got.Bytes(), message.Bytes()) {
			t.Fatalf("%v: %d bytes of %d", err, got.Len(), message.Len())
		}
		if next, _ := io.ReadAll(in); string(next) != "next" {
			t.Fatalf("%q is left", next)
		}
	})
}

// The codec of memberlist reserves what an extension announces: four gigabytes for
// a packet of ten bytes.
func TestALengthThatIsOnlyAnnouncedReachesNoDecoderOfMemberlist(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	w.acquainted(by, to)
	huge := []byte{0x81, 0xa1, 'x', 0xc9, 0xff, 0xff, 0xff, 0xff, 1} // a map with an extension of 4 GiB
	for _, kind := range []byte{messagePing, messageIndirectPing, messageAck, messageNack, messageError, messageSuspect, messageAlive, messageDead} {
		if kept := to.inspect(append([]byte{kind}, huge...), announcer{"by", by.addr}); len(kept) > 0 {
			t.Errorf("a packet of type %d reaches memberlist", kind)
		}
	}
	if n := to.dropped(dropMessageFormat); n != 8 {
		t.Errorf("%d packets are counted, want 8", n)
	}
}
