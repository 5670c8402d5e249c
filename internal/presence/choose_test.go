package presence

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// threeList returns the view of r4: r1, r2 and r3 list w1, in its life 7 with record 5, and r0 lies.
func threeList(lie func(*listed)) *Fleet {
	f := viewOf("r4", 100)
	f.records[instance{"w1", 7}] = 5
	for _, relay := range []string{"r0", "r1", "r2", "r3"} {
		w := worker("w1", 7, 5)
		w.draining = false
		if relay == "r0" {
			lie(&w)
		}
		f.listOf(relay).put(w)
	}
	return f
}

// viewOf returns the fleet of a relay without a node: its lists, records and choices.
func viewOf(id string, maxMembers int) *Fleet {
	logger := slog.New(slog.DiscardHandler)
	return &Fleet{
		cfg: membership.Config{ID: id, MaxMembers: maxMembers}, own: log{list: *newList()}, lists: map[string]*foreign{}, proofs: map[string]proof{},
		records: map[instance]uint64{}, asked: map[instance]time.Time{}, left: map[instance]struct{}{}, wake: make(chan struct{}, 1), choices: newChoices(),
		logger: logger, lines: loglimit.New(logger), metrics: newMetrics(nil),
	}
}

// listOf returns the list of another relay, which it makes.
func (f *Fleet) listOf(relay string) *foreign {
	if f.lists[relay] == nil {
		f.lists[relay] = &foreign{list: *newList(), wants: make(chan []instance, 16), end: func() {}}
	}
	return f.lists[relay]
}

// chooseAll chooses all workers again.
func chooseAll(f *Fleet) (wants map[string][]instance) {
	f.changedEverywhere()
	return f.choose(time.Now())
}

// changedEverywhere marks all workers of all lists.
func (f *Fleet) changedEverywhere() {
	f.changedAll(&f.own.list)
	for _, l := range f.lists {
		f.changedAll(&l.list)
	}
}

func TestALyingRelayMovesDrainsAndRemovesNoWorkerOfOthers(t *testing.T) {
	elsewhere := netip.MustParseAddr("10.9.9.9")
	for name, lie := range map[string]func(*listed){
		"a host":                  func(w *listed) { w.host = elsewhere },
		"a host and any sequence": func(w *listed) { w.host, w.sequence = elsewhere, math.MaxUint64 },
		"a drain":                 func(w *listed) { w.draining = true },
		"a drain, any sequence":   func(w *listed) { w.draining, w.sequence = true, math.MaxUint64 },
		"a later life":            func(w *listed) { w.epoch = math.MaxUint64 },
		"an earlier life":         func(w *listed) { w.epoch = 1 },
		"a sequence":              func(w *listed) { w.sequence = math.MaxUint64 },
		"a datacenter":            func(w *listed) { w.datacenter = "ams1" },
		"a region":                func(w *listed) { w.region = "us" },
		"a version":               func(w *listed) { w.version = "v0" },
		"a host and a datacenter": func(w *listed) { w.host, w.datacenter = elsewhere, "ams1" },
	} {
		f := threeList(lie)
		chooseAll(f)
		w, there := f.best["w1"]
		if !there || w.epoch != 7 || w.host != netip.MustParseAddr("10.0.0.5") || w.draining || w.datacenter != "fra1" || w.region != "eu" || w.version != "v1" {
			t.Errorf("%s: there %t, %+v", name, there, w)
		}
	}
}

// Only the liar lists the worker, so there is no other statement to prefer.
func TestARelayThatContradictsTheCertificateOfAWorkerMovesItToNoOtherDatacenter(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := func(claims identity.Claims) *identity.Source {
		claims.Cluster, claims.Environment = "shop", "prod"
		s, err := authority.Source(claims, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct{ certified, stated, want string }{
		{"fra1", "ams1", "fra1"}, {"fra1", "", "fra1"}, {"", "ams1", "ams1"}, // the last certificate does not restrict it
	} {
		f := viewOf("r4", 100)
		t.Cleanup(f.lines.Stop)
		f.cfg.Identity, f.certificates = source(identity.Claims{Role: identity.RoleRelay, Node: "r4"}), map[keyID]*identity.Certified{}
		chain := source(identity.Claims{Role: identity.RoleWorker, Node: "w1", Datacenter: c.certified}).Chain()
		w := worker("w1", 7, 5)
		w.datacenter, w.key = c.stated, identity.KeyID(chain[0])
		f.kept("w1", 7, 5)
		f.listOf("r0").put(w)
		if _, err := f.learn("w1", chain); err != nil {
			t.Fatal(err)
		}
		if chooseAll(f); f.best["w1"].datacenter != c.want {
			t.Errorf("%+v: %+v", c, f.best)
		}
	}
}

func TestAWorkerOfWhichNoRecordIsHereIsAskedForAndNotChosen(t *testing.T) {
	f := threeList(func(*listed) {})
	clear(f.records)
	wants := chooseAll(f)
	if len(f.best) != 0 || len(wants) != 1 || f.missing != 1 {
		t.Errorf("chosen %v, wanted %v, missing %d", f.best, wants, f.missing)
	}
}

func TestALifeThatALyingRelayInventsHidesNoNewOne(t *testing.T) {
	f := threeList(func(w *listed) { w.epoch = math.MaxUint64 })
	for _, relay := range []string{"r1", "r2", "r3"} {
		w := f.lists[relay].workers["w1"]
		w.epoch = 8
		f.lists[relay].put(w)
	}
	wants := chooseAll(f)
	asked := map[instance]bool{}
	for _, wanted := range wants {
		for _, i := range wanted {
			asked[i] = true
		}
	}
	if !asked[instance{"w1", 8}] {
		t.Errorf("wanted are %v: the new life is never proven", wants)
	}
	f.records[instance{"w1", 8}] = 1
	if chooseAll(f); f.best["w1"].epoch != 8 {
		t.Errorf("%+v", f.best["w1"])
	}
}

func TestADrainThatMostRelaysStateCounts(t *testing.T) {
	f := threeList(func(*listed) {})
	for _, relay := range []string{"r1", "r2", "r3"} {
		w := f.lists[relay].workers["w1"]
		w.draining = true
		f.lists[relay].put(w)
	}
	if chooseAll(f); !f.best["w1"].draining {
		t.Errorf("%+v", f.best["w1"])
	}
}

// Whatever has changed since, the choices are those of a relay that chooses all workers anew.
func TestWhatIsChosenAgainIsWhatAllListsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := viewOf("r0", 5)
		defer f.lines.Stop()
		ids, hosts := rapid.SampledFrom([]string{"w1", "w2", "w3"}), rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")})
		relays, small, datacenters := rapid.SampledFrom([]string{"r1", "r2", "r3"}), rapid.Uint64Range(1, 3), rapid.SampledFrom([]string{"", "ams1", "fra1"})
		listing := func() listed {
			return listed{instance: instance{ids.Draw(t, "id"), small.Draw(t, "epoch")}, host: hosts.Draw(t, "host"), datacenter: datacenters.Draw(t, "datacenter"), draining: rapid.Bool().Draw(t, "draining"), sequence: small.Draw(t, "sequence")}
		}
		t.Repeat(map[string]func(*rapid.T){
			"list": func(t *rapid.T) {
				l := f.listOf(relays.Draw(t, "relay"))
				if err := f.apply(l, change{sequence: l.sequence + 1, listed: []listed{listing()}}); err != nil {
					t.Fatal(err)
				}
			},
			"gone": func(t *rapid.T) {
				l, one := f.listOf(relays.Draw(t, "relay")), listing()
				if err := f.apply(l, change{sequence: l.sequence + 1, gone: []gone{{one.instance, false}}}); err != nil {
					t.Fatal(err)
				}
			},
			"list own": func(*rapid.T) { f.put(listing(), proof{}) },
			"own gone": func(*rapid.T) { f.drop(listing().instance, true) },
			"record": func(*rapid.T) {
				one := listing()
				f.take = func(context.Context, []byte) (string, uint64, uint64, error) {
					f.kept(one.id, one.epoch, one.sequence)
					return one.id, one.epoch, one.sequence, nil
				}
				if _, err := f.takeRecord(context.Background(), one.instance, nil); err != nil {
					t.Fatal(err)
				}
			},
			"record dropped": func(t *rapid.T) {
				one := listing()
				f.kept(one.id, one.epoch, 0)
			},
			"silence of a relay": func(t *rapid.T) {
				relay := relays.Draw(t, "relay")
				f.changedAll(&f.listOf(relay).list)
				delete(f.lists, relay)
			},
			"": func(t *rapid.T) {
				now := time.Now()
				f.choose(now)
				anew := &Fleet{cfg: f.cfg, own: f.own, lists: f.lists, records: f.records, asked: map[instance]time.Time{}, choices: newChoices()}
				anew.changedEverywhere()
				anew.choose(now)
				if !maps.Equal(f.best, anew.best) || !slices.Equal(f.attached, anew.attached) || f.missing != anew.missing {
					t.Fatalf("chosen %v, missing %d; anew %v, missing %d", f.best, f.missing, anew.best, anew.missing)
				}
			},
		})
	})
}

func TestTheLaterLifeOfTwoMembersWithOneIdCounts(t *testing.T) {
	w := func(id string, epoch uint64, role identity.Role, attached bool) membership.Member {
		return membership.Member{ID: id, Epoch: epoch, Role: role, Attached: attached}
	}
	base := []membership.Member{w("b", 5, identity.RoleWorker, false), w("d", 5, identity.RoleRelay, false), w("f", 5, identity.RoleWorker, false)}
	f := &Fleet{choices: newChoices()}
	f.attached = []membership.Member{
		w("a", 9, identity.RoleWorker, true), w("b", 9, identity.RoleWorker, true), w("d", 9, identity.RoleWorker, true),
		w("f", 4, identity.RoleWorker, true), w("g", 9, identity.RoleWorker, true),
	}
	for limit, want := range map[int][]membership.Member{
		9: {f.attached[0], f.attached[1], base[1], base[2], f.attached[4]},
		5: {f.attached[0], f.attached[1], base[1], base[2], f.attached[4]},
		4: {f.attached[0], f.attached[1], base[1], base[2]},
	} {
		f.cfg.MaxMembers = limit
		if got := f.join(base); !slices.Equal(got, want) || f.full != (limit == 4) {
			t.Errorf("of %d: %v, full %t", limit, got, f.full)
		}
	}
}

// BenchmarkChange is what the change of one of 20,000 workers costs a relay, until its snapshot is there.
func BenchmarkChange(b *testing.B) {
	f := viewOf("r00", 25_000)
	b.Cleanup(f.lines.Stop)
	var base []membership.Member
	for i := range 40 {
		id := fmt.Sprintf("r%02d", i)
		base = append(base, membership.Member{ID: id, Epoch: 1, Role: identity.RoleRelay})
	}
	var all []listed
	for i := range 20_000 {
		w := listed{instance: instance{fmt.Sprintf("w%05d", i), 1}, host: netip.MustParseAddr("10.0.0.1"), sequence: 1}
		all = append(all, w)
		f.records[w.instance] = 1
		for j := range 3 {
			l := f.listOf(fmt.Sprintf("r%02d", 1+(i+13*j)%39))
			if err := f.apply(l, change{sequence: l.sequence + 1, listed: []listed{w}}); err != nil {
				b.Fatal(err)
			}
		}
	}
	snapshot := membership.NewSnapshot(1, "r00", base)
	if n := f.merge(b.Context(), snapshot); n != 20_040 {
		b.Fatalf("%d members", n)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w, l := all[i%len(all)], f.listOf(fmt.Sprintf("r%02d", 1+i%39))
		w.draining = i%2 == 0
		if err := f.apply(l, change{sequence: l.sequence + 1, listed: []listed{w}}); err != nil {
			b.Fatal(err)
		}
		f.merge(b.Context(), snapshot)
	}
}
