//go:build linux

package hostile

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
)

// watching is how long a state must hold under an attack that showed within a second
// when it worked.
const watching = 5 * time.Second

// TestTheGossipKeyAloneGetsNoRequest has an outsider make up a worker with an offer of
// the service, and ask all relays to prefer it.
func TestTheGossipKeyAloneGetsNoRequest(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 2})
	o, listener := newOutsider(t, f), listenBait(t, "127.0.9.1")
	ghost := instance{"ghost", uint64(time.Now().UnixMilli())}
	offer := advertise.Service{Name: echo, Address: listener.addr, Weight: 1, Selection: "ordered;preferred=" + ghost.id}
	f.arrives(func() {
		o.send(f.gossipOf(true), o.isAlive(ghost, identity.RoleWorker), o.offers(ghost, 1, offer))
	}, func(r *relay) bool { return f.endpoints(r, echo) > len(f.Workers) })
	f.serves(20)
	listener.untouched(t, "the outsider")
	for _, r := range f.Relays {
		if got := f.IDs(r); !slices.Equal(got, f.ids()) {
			t.Errorf("%s lists %v as members", r.ID, got)
		}
	}
}

// TestLeaveNoticesOfAnotherEndNoService has an outsider send the leave notice of every worker.
func TestLeaveNoticesOfAnotherEndNoService(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	o := newOutsider(t, f)
	var goodbyes [][]byte
	for _, w := range f.instances("w") {
		goodbyes = append(goodbyes, goodbye(w))
	}
	f.arrives(func() { o.send(f.gossipOf(false), goodbyes...) },
		func(*relay) bool { return f.allThere() != nil })
	f.wellDuring(watching)
}

// TestARecordOfAnotherReplacesNoOffer has an outsider publish, in the name of a worker
// that lives, a record with the highest sequence that there is.
func TestARecordOfAnotherReplacesNoOffer(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	o, listener := newOutsider(t, f), listenBait(t, "127.0.9.1")
	victim := f.instances("w1")[0]
	record := o.offers(victim, 1<<53, advertise.Service{Name: echo, Address: listener.addr},
		advertise.Service{Name: "hijacked", Address: listener.addr})
	f.arrives(func() { o.send(f.gossipOf(true), record) },
		func(r *relay) bool { return f.offers(r, "hijacked") })
	f.serves(20)
	listener.untouched(t, "the outsider")

	// The leave notice of the owner still counts afterwards: its service ends.
	f.servers[0].CloseClientConnections()
	f.servers[0].Close()
	for _, r := range f.Relays {
		procs.Await(t, r.ID+" hears that w1 offers nothing any more", func() bool { return f.endpoints(r, echo) == len(f.Workers)-1 })
		if f.offers(r, "hijacked") {
			t.Errorf("%s takes what was made up for an offer", r.ID)
		}
	}
	if f.Workers[0].Logged("cannot publish", "") {
		t.Error("the owner cannot publish its record any more")
	}
}

// TestALaterBootOfAnotherSupersedesNoMember has an outsider claim every id with a boot
// time of the year 2286.
func TestALaterBootOfAnotherSupersedesNoMember(t *testing.T) {
	t.Parallel()
	const future = 9_999_999_999_999
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	o := newOutsider(t, f)
	var claims [][]byte
	for _, id := range f.ids() {
		role := identity.RoleWorker
		if strings.HasPrefix(id, "r") {
			role = identity.RoleRelay
		}
		claims = append(claims, o.isAlive(instance{id, future}, role))
	}
	f.arrives(func() { o.send(f.gossipOf(true), claims...) }, func(r *relay) bool {
		return slices.ContainsFunc(f.listed(r), func(m member) bool { return m.Epoch == future })
	})
	f.wellDuring(watching)
	for _, r := range f.Relays {
		for _, m := range f.listed(r) {
			if m.Epoch == future {
				t.Errorf("%s takes the outsider for %s", r.ID, m.ID)
			}
		}
	}
}

// TestADeathThatCannotBeRefutedKillsNoMember has an outsider declare every member dead
// with the highest incarnation, beyond which memberlist's answer would wrap around.
func TestADeathThatCannotBeRefutedKillsNoMember(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	o := newOutsider(t, f)
	var deaths [][]byte
	for _, m := range append(f.instances("w"), f.instances("r")...) {
		deaths = append(deaths, message(msgDead, dead{Incarnation: math.MaxUint32, Node: m.name(), From: m.name()}),
			message(msgSuspect, dead{Incarnation: math.MaxUint32, Node: m.name(), From: m.name()}))
	}
	f.arrives(func() { o.send(f.gossipOf(true), deaths...) }, func(r *relay) bool { return len(f.IDs(r)) < len(f.ids()) })
	f.wellDuring(watching)
}

// TestPlansHoldNoRelayThatDoesNotExist has an outsider make up 60 relays while the
// fleet starts.
func TestPlansHoldNoRelayThatDoesNotExist(t *testing.T) {
	t.Parallel()
	const fakes, perPacket = 60, 4
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Before: func(f *fleet) {
		o := newOutsider(t, f)
		var packets [][][]byte
		for n := 0; n < fakes; n += perPacket {
			var messages [][]byte
			for i := range perPacket {
				messages = append(messages, o.isAlive(instance{fmt.Sprintf("fake-%d", n+i), uint64(time.Now().UnixMilli())}, identity.RoleRelay))
			}
			packets = append(packets, messages)
		}
		keepDoing(t, func() {
			for _, messages := range packets {
				o.send(f.gossipOf(true), messages...)
			}
		})
	}})
	for _, r := range f.Relays {
		procs.Await(t, "the attack arrives at "+r.ID, func() bool { return len(f.IDs(r)) > len(f.ids()) || f.refusals(r.Admin) > fakes })
		if got := len(f.IDs(r)); got > len(f.ids()) {
			t.Fatalf("%s lists %d members, %d exist", r.ID, got, len(f.ids()))
		}
	}
	f.serving()
	during(t, watching, func() error {
		for _, r := range f.Relays {
			if got := f.planned(r); !slices.Equal(got, []string{"r1", "r2", "r3"}) {
				return fmt.Errorf("the plan of %s has the relays %v", r.ID, got)
			}
		}
		return nil
	})
	f.serves(20)
}

// planned are the relays in a relay's plan of the service, sorted.
func (f *fleet) planned(r *relay) (ids []string) {
	var plan struct{ Relays []struct{ Relay string } }
	f.Get(r, "/api/v1/services/"+echo+"/plan", &plan)
	for _, planned := range plan.Relays {
		ids = append(ids, planned.Relay)
	}
	slices.Sort(ids)
	return ids
}

// TestWithoutCertificatesAForgedGoodbyeLastsSeconds has a holder of the gossip key, in a fleet
// without certificates, send a goodbye in the name of a worker to all members but that one.
func TestWithoutCertificatesAForgedGoodbyeLastsSeconds(t *testing.T) {
	t.Parallel()
	const seconds = 20 * time.Second // a minute and a half, or for good, where nothing asks the member
	for _, noticed := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a leave notice %t", noticed), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, KeyOnly: true})
			o, victim := newOutsider(t, f), f.instances("w1")[0]
			others := slices.DeleteFunc(f.gossipOf(true), func(addr string) bool { return addr == f.Workers[0].Gossip })
			gone := func(r *relay) bool { return !slices.Contains(f.IDs(r), victim.id) }
			var lies [][]byte
			for incarnation := range uint32(8) {
				lies = append(lies, message(msgDead, dead{Incarnation: 1 + incarnation, Node: victim.name(), From: victim.name()}))
			}
			if noticed {
				lies = append(lies, goodbye(victim))
			}
			began := time.Now()
			stop := keepDoing(t, func() { o.send(others, lies...) })
			procs.Await(t, "a relay believes it", func() bool { return slices.ContainsFunc(f.Relays, gone) })
			stop()
			procs.Await(t, "all relays list the worker again", func() bool { return !slices.ContainsFunc(f.Relays, gone) && f.allThere() == nil })
			took := time.Since(began)
			t.Logf("gone for %v", took.Round(10*time.Millisecond))
			if took > seconds {
				t.Errorf("a forged goodbye lasts %v", took)
			}
			f.wellDuring(time.Second)
		})
	}
}
