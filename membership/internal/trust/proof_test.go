package trust

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// announcement is what gossip reports about a member, with what change makes of it.
func (m *guarded) announcement(t testing.TB, change func(*gossip.Metadata)) announced {
	t.Helper()
	var a gossip.Alive
	if err := gossip.Decode(m.alive(t, func(d *gossip.Metadata, _ *gossip.Alive) {
		if change != nil {
			change(d)
		}
	})[1:], &a); err != nil {
		t.Fatal(err)
	}
	return announced{name: a.Node, addr: gossip.AddrPort(a.Addr, a.Port), metadata: a.Meta, incarnation: 1}
}

// knows makes a member learn the certificates of others.
func (m *guarded) knows(t testing.TB, others ...*guarded) {
	t.Helper()
	for _, other := range others {
		if _, err := m.proofs.learn(other.cfg.Identity.Chain()); err != nil {
			t.Fatal(err)
		}
	}
}

// in gives a member a datacenter, by its certificate.
func in(datacenter string) func(*setup) {
	return func(s *setup) { s.Datacenter = datacenter }
}

func TestAnInstanceIsProvenOnlyIfAllThatIsSaidAboutItAgrees(t *testing.T) {
	w := newWire(t)
	by, placed, unknown, to := w.member("by", nil), w.member("placed", in("ams1")), w.member("unknown", nil), w.member("to", nil)
	to.knows(t, by, placed)
	same := func(*gossip.Metadata) {}
	for _, c := range []struct {
		name   string
		of     *guarded
		change func(*gossip.Metadata)
		damage func(*announced)
		kind   string // "" if it is proven
		reason string // a part of it
	}{
		{name: "as it is", of: by, change: same},
		{name: "with a datacenter that its certificate leaves open", of: by, change: func(d *gossip.Metadata) { d.Datacenter = "ams1" }},
		{name: "with that of its certificate", of: placed, change: func(d *gossip.Metadata) { d.Datacenter = "ams1" }},
		{name: "with another one", of: placed, change: func(d *gossip.Metadata) { d.Datacenter = "fra1" }, kind: unprovenDisagreement, reason: `the datacenter "fra1", its certificate has "ams1"`},
		{name: "without one", of: placed, change: same, kind: unprovenDisagreement, reason: `the datacenter ""`},
		{name: "in another cluster", of: by, change: func(d *gossip.Metadata) { d.Cluster = "other" }, kind: unprovenDisagreement, reason: `the cluster "other"`},
		{name: "in another environment", of: by, change: func(d *gossip.Metadata) { d.Environment = "other" }, kind: unprovenDisagreement, reason: `the environment "other"`},
		{name: "in another role", of: by, change: func(d *gossip.Metadata) { d.Role = string(identity.RoleRelay) }, kind: unprovenDisagreement, reason: `the role "relay"`},
		{name: "under another id", of: by, change: func(d *gossip.Metadata) { d.ID = "to" }, damage: func(a *announced) { a.name = gossip.InstanceName("to", by.epoch) }, kind: unprovenDisagreement, reason: `the id "to"`},
		{name: "under another name", of: by, change: same, damage: func(a *announced) { a.name += "1" }, kind: unprovenDisagreement, reason: "gossiped as"},
		{name: "at another address", of: by, change: same, damage: func(a *announced) { a.addr = "10.6.6.6:666" }, kind: unprovenAddress, reason: "gossiped at 10.6.6.6:666"},
		{name: "without an address", of: by, change: func(d *gossip.Metadata) { d.GossipAddr = "" }, kind: unprovenUnsigned, reason: "upgrade it"},
		{name: "without metadata", of: by, change: same, damage: func(a *announced) { a.metadata = nil }, kind: unprovenUnsigned, reason: "not signed"},
		{name: "with a signature only", of: by, change: same, damage: func(a *announced) { a.metadata = a.metadata[len(a.metadata)-MaxSignature:] }, kind: unprovenUnsigned, reason: "not signed"},
		{name: "with bytes for metadata", of: by, change: same, damage: func(a *announced) { a.metadata = make([]byte, memberlist.MetaMaxSize) }, kind: unprovenUnsigned, reason: "cannot be read"},
		{name: "with too many bytes", of: by, change: same, damage: func(a *announced) { a.metadata = make([]byte, memberlist.MetaMaxSize+1) }, kind: unprovenUnsigned, reason: "512 are allowed"},
		{name: "with a damaged signature", of: by, change: same, damage: func(a *announced) { a.metadata[len(a.metadata)-1] ^= 1 }, kind: unprovenSignature, reason: "not signed by its author"},
		{name: "with another version than it signed", of: by, change: func(d *gossip.Metadata) { d.Version = "1" }, damage: func(a *announced) {
			a.metadata = bytes.Replace(a.metadata, []byte("\xa11"), []byte("\xa12"), 1)
		}, kind: unprovenSignature, reason: "not signed by its author"},
		{name: "with a certificate that is not known", of: unknown, change: same, kind: unprovenCertificate, reason: "no member has shown"},
	} {
		a := c.of.announcement(t, c.change)
		if c.damage != nil {
			c.damage(&a)
		}
		for _, before := range []string{"first", "again", "after it was proven"} {
			if before == "after it was proven" {
				if _, err := to.proofs.prove(by.announcement(t, nil)); err != nil {
					t.Fatal(err)
				}
			}
			m, err := to.proofs.prove(a)
			var unproven *unprovenError
			switch errors.As(err, &unproven); {
			case c.kind == "":
				if unproven != nil || m.ID != c.of.who.Node {
					t.Errorf("%s, %s: %+v, %v", c.name, before, m, unproven)
				}
			case unproven == nil || unproven.kind != c.kind || !strings.Contains(unproven.reason, c.reason):
				t.Errorf("%s, %s: %v, want %s: %s", c.name, before, err, c.kind, c.reason)
			case (unproven.missing != nil) != (c.of == unknown):
				t.Errorf("%s, %s: its certificate is requested: %v", c.name, before, unproven.missing)
			}
		}
	}
	// Metadata may be as long as memberlist carries.
	for length := range memberlist.MetaMaxSize {
		d := gossip.Metadata{Format: gossip.MetadataFormat, Cluster: "test", Environment: "ci", ID: "by", Epoch: by.epoch, Role: "worker", GossipAddr: by.addr, Version: strings.Repeat("1", length)}
		if body, err := d.Encode(MaxSignature); err == nil && len(body)+MaxSignature == memberlist.MetaMaxSize {
			if _, err := to.proofs.prove(by.announcement(t, func(m *gossip.Metadata) { *m = d })); err != nil {
				t.Errorf("with %d bytes: %v", memberlist.MetaMaxSize, err)
			}
			return
		}
	}
	t.Error("no metadata is as long as it may be")
}

// The signature is checked once for the same bytes, and the certificate each time.
func TestAnInstanceLapsesWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		brief := func(s *setup) {
			var err error
			if s.Identity, err = w.authority.Source(s.Claims, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		by, to := w.member("by", brief), w.member("to", nil)
		to.knows(t, by)
		a := by.announcement(t, nil)
		if reason := to.Lapsed(by.self); reason != "its identity is not proven any more" {
			t.Errorf("before it is proven: %q", reason)
		}
		if err := to.Prove(a.name, a.addr, a.metadata); err != nil {
			t.Fatal(err)
		}
		for _, instance := range []string{by.self, to.self} {
			if reason := to.Lapsed(instance); reason != "" {
				t.Errorf("%s: %s", instance, reason)
			}
		}
		time.Sleep(2 * time.Hour)
		var unproven *unprovenError
		if err := to.Prove(a.name, a.addr, a.metadata); !errors.As(err, &unproven) || unproven.kind != unprovenCertificate || unproven.missing != nil {
			t.Errorf("after its certificate has ended: %v", err)
		}
		if reason := to.Lapsed(by.self); !strings.Contains(reason, "its certificate is refused") {
			t.Errorf("after its certificate has ended: %q", reason)
		}
		if reason := to.Lapsed(to.self); reason != "" {
			t.Errorf("the node itself: %s", reason)
		}
		if err := to.Verify(Claim{"by", StatementRecord, nil, by.Sign(StatementRecord, nil)}); err == nil || errors.Is(err, ErrUnproven) {
			t.Errorf("a statement: %v", err)
		}
		if _, err := to.proofs.learn(by.cfg.Identity.Chain()); err == nil {
			t.Error("a certificate that has ended is learned again")
		}
	})
}

func TestTheNewestStatementOfAnInstanceIsKept(t *testing.T) {
	w := newWire(t)
	by, to := w.member("by", nil), w.member("to", nil)
	to.knows(t, by)
	at := func(incarnation uint32, version, addr string) announced {
		a := by.announcement(t, func(d *gossip.Metadata) { d.Incarnation, d.Version, d.GossipAddr = incarnation, version, addr })
		a.addr, a.incarnation = addr, incarnation
		return a
	}
	for _, step := range []struct {
		said    announced
		version string // that is kept
	}{
		{at(3, "a", "10.0.0.1:1"), "a"}, {at(2, "b", "10.0.0.1:2"), "a"}, {at(3, "c", "10.0.0.1:3"), "c"}, {at(4, "d", "10.0.0.1:3"), "d"}, {at(4, "d", "10.0.0.1:3"), "d"},
	} {
		if _, err := to.proofs.prove(step.said); err != nil {
			t.Fatal(err)
		}
		known := to.proofs.instances[by.self]
		m, err := gossip.DecodeMetadata(known.metadata[:len(known.metadata)-MaxSignature])
		if err != nil || m.Version != step.version || m.GossipAddr != known.addr || m.Incarnation != known.incarnation || known.highest < step.said.incarnation {
			t.Errorf("kept is %+v of %+v, want version %s", m, known, step.version)
		}
		if len(to.proofs.addrs) != 1 || !to.proofs.gossipsAt(known.addr) || to.proofs.addr(by.self) != known.addr {
			t.Errorf("the addresses are %v, want %s", to.proofs.addrs, known.addr)
		}
	}
	// A statement at a lower incarnation lowers nothing.
	if _, err := to.proofs.prove(at(1, "e", "10.0.0.1:4")); err != nil || to.proofs.instances[by.self].highest != 4 {
		t.Errorf("the highest incarnation is %d, want 4: %v", to.proofs.instances[by.self].highest, err)
	}
}

func TestNodesAndCertificatesAreLimited(t *testing.T) {
	w := newWire(t)
	to := w.member("to", func(s *setup) { s.MaxMembers = 2 })
	var members []*guarded
	for i := range 5 {
		members = append(members, w.member(fmt.Sprint("m", i), nil))
		if _, err := to.proofs.learn(members[i].cfg.Identity.Chain()); (err == nil) != (i < 4) {
			t.Errorf("certificate %d of 4: %v", i+1, err)
		}
	}
	for i := range 5 {
		kind, _ := to.proofs.admit(gossip.Metadata{ID: fmt.Sprint("m", i), Epoch: 1}, time.Now())
		if want := map[bool]string{true: unprovenTooMany}[i == 4]; kind != want {
			t.Errorf("node %d of 4: %q, want %q", i+1, kind, want)
		}
	}
	if kind, _ := to.proofs.admit(gossip.Metadata{ID: "m0", Epoch: 2}, time.Now()); kind != "" {
		t.Errorf("another boot of a known node: %q", kind)
	}
	to.knows(t, members[0]) // again
	if _, err := to.proofs.learn(nil); err == nil {
		t.Error("no certificate is learned")
	}
}

func TestTheServicesOfAMemberAreThoseOfTheCertificateThatSigned(t *testing.T) {
	w := newWire(t)
	by := w.member("by", func(s *setup) { s.Services = "search" })
	plain, to := w.member("plain", nil), w.member("to", nil)
	for _, known := range []bool{false, true} {
		if known {
			to.knows(t, by, plain)
		}
		for _, c := range []struct {
			metadata []byte
			want     string
		}{{by.announcement(t, nil).metadata, "search"}, {plain.announcement(t, nil).metadata, ""}, {[]byte("short"), ""}, {nil, ""}} {
			if !known {
				c.want = ""
			}
			if got := to.ServiceNames(c.metadata); got != c.want {
				t.Errorf("certificates known %v: services %q, want %q", known, got, c.want)
			}
		}
	}
}

// A boot time is in the future if it is so by this host's clock and by those of most members.
func TestABootTimeIsJudgedByTheClocksOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		to := w.member("to", nil)
		now, hour := time.Now().UnixMilli(), time.Hour.Milliseconds()
		if !to.fleetTime().IsZero() {
			t.Errorf("without a session the fleet has the time %v", to.fleetTime())
		}
		if epoch := now + futureEpoch.Milliseconds(); to.proofs.future(uint64(epoch)) || !to.proofs.future(uint64(epoch)+1) {
			t.Error("by the clock of this host alone")
		}
		// The clocks of five members: the one in the middle counts, as time passes.
		for i, ahead := range []int64{-1000 * hour, hour, 2 * hour, 3 * hour, 1000 * hour} {
			to.begin(sessionKey{keyID{byte(i)}, uint64(now + ahead)}, 0)
		}
		time.Sleep(time.Minute)
		if got, want := to.fleetTime().UnixMilli(), now+2*hour+time.Minute.Milliseconds(); got != want {
			t.Errorf("the fleet has the time %v, want %v", time.UnixMilli(got), time.UnixMilli(want))
		}
		if epoch := to.fleetTime().Add(futureEpoch).UnixMilli(); to.proofs.future(uint64(epoch)) || !to.proofs.future(uint64(epoch)+1) {
			t.Error("a boot that the clocks of the fleet allow")
		}
		if !to.proofs.future(1<<64 - 1) {
			t.Error("the last epoch of all is allowed")
		}
	})
}

func TestWhatIsUsedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		by, idle, to := w.member("by", nil), w.member("idle", nil), w.member("to", nil)
		to.knows(t, by, idle)
		if _, err := to.proofs.prove(by.announcement(t, nil)); err != nil {
			t.Fatal(err)
		}
		for range 3 { // the event loop asks
			time.Sleep(keepProof)
			to.Sweep()
			if len(to.proofs.certificates) == 0 || to.proofs.count() != 1 || !to.proofs.gossipsAt(by.addr) {
				t.Fatalf("%d certificates of %d instances are kept", len(to.proofs.certificates), to.proofs.count())
			}
			to.proofs.mu.Lock() // as lapsed, without the use of the certificate
			known := to.proofs.instances[by.self]
			known.used = time.Now()
			to.proofs.instances[by.self] = known
			to.proofs.mu.Unlock()
		}
		if len(to.proofs.certificates) != 1 || to.proofs.chain(identity.KeyID(idle.cfg.Identity.Chain()[0])) != nil {
			t.Errorf("%d certificates are kept, want that of the instance", len(to.proofs.certificates))
		}
		time.Sleep(keepProof + time.Second)
		to.Lapsed(by.self)
		time.Sleep(time.Minute)
		if to.Sweep(); to.proofs.count() != 1 {
			t.Error("an instance that is asked for is forgotten")
		}
		time.Sleep(keepProof + time.Second)
		to.Sweep()
		if p := to.proofs; len(p.certificates)+len(p.instances)+len(p.nodes)+len(p.addrs)+len(p.ending) != 0 {
			t.Errorf("left over: %d certificates, %d instances, %d nodes, %d addresses", len(p.certificates), len(p.instances), len(p.nodes), len(p.addrs))
		}
	})
}

func TestTheListOfTheUnprovenIsSortedBoundedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		to := w.member("to", nil)
		to.ListUnsigned("b", "10.0.0.9:1")
		to.LeaveOut(Unproven{ID: "a", Epoch: 2, Reason: "first"})
		to.LeaveOut(Unproven{ID: "a", Epoch: 1, Reason: "first"})
		if to.unprovenAs(unprovenUnsigned) != 1 {
			t.Error("a member that does not sign is not counted")
		}
		begun := time.Now()
		time.Sleep(time.Minute)
		to.LeaveOut(Unproven{ID: "a", Epoch: 1, Reason: "first"})
		to.LeaveOut(Unproven{ID: "a", Epoch: 2, Reason: "second"})
		list := to.Unproven()
		want := []Unproven{
			{ID: "a", Epoch: 1, Reason: "first", Since: begun},
			{ID: "a", Epoch: 2, Reason: "second", Since: time.Now()},
			{ID: "b", GossipAddr: "10.0.0.9:1", Reason: "its release does not sign gossip, so its gossip is ignored: upgrade it", Since: begun},
		}
		if !slices.Equal(list, want) {
			t.Errorf("listed are\n%+v, want\n%+v", list, want)
		}
		time.Sleep(unprovenFor - time.Minute)
		if to.Sweep(); len(to.Unproven()) != 3 {
			t.Errorf("%d are left after %v, want 3", len(to.Unproven()), unprovenFor)
		}
		time.Sleep(time.Second)
		if to.Sweep(); len(to.Unproven()) != 2 {
			t.Errorf("%d are left, want the two that were reported again", len(to.Unproven()))
		}
		for i := range maxUnproven - 2 {
			to.LeaveOut(Unproven{ID: "x", Epoch: uint64(i)})
		}
		to.LeaveOut(Unproven{ID: "a", Epoch: 1, Reason: "third"})
		if len(to.Unproven()) != maxUnproven {
			t.Errorf("%d are listed, want %d", len(to.Unproven()), maxUnproven)
		}
		to.LeaveOut(Unproven{ID: "y"})
		if list := to.Unproven(); len(list) != maxUnproven || list[len(list)-1].ID != "y" {
			t.Errorf("%d are listed, want %d with the newest one", len(list), maxUnproven)
		}
	})
}
