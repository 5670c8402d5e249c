package presence

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func TestAWorkerOfAnotherFleetIsToldWhichFlagToCorrect(t *testing.T) {
	s := &Server{fleet: &Fleet{cfg: membership.Config{Cluster: "shop", Environment: "prod"}}}
	for want, hello := range map[string]session.Hello{
		`cluster mismatch: ours "shop", theirs "bank": give both the same --cluster, or correct --attach`:         {ID: "w1", Epoch: 1, Cluster: "bank", Environment: "prod"},
		`environment mismatch: ours "prod", theirs "test": give both the same --environment, or correct --attach`: {ID: "w1", Epoch: 1, Cluster: "shop", Environment: "test"},
	} {
		_, why := s.greet(nil, bufio.NewReader(bytes.NewReader(session.AppendFrame(nil, session.KindHello, hello.Encode()))))
		if why == nil || why.Code != refusedCluster || !strings.Contains(why.Text, want) {
			t.Errorf("%v, want %s", why, want)
		}
	}
}

// Either clock may be the wrong one. A worker keeps its epoch, so setting its clock right is not enough.
func TestAWorkerThatStartsInTheFutureIsToldToCompareTheClocksAndToRestart(t *testing.T) {
	s := &Server{fleet: &Fleet{cfg: membership.Config{Cluster: "shop", Environment: "prod"}}}
	ahead := time.Now().Add(futureEpoch + time.Minute)
	for started, epoch := range map[string]uint64{ahead.UTC().Format(time.RFC3339): uint64(ahead.UnixMilli()), "37648-05-06T22:07:22Z": math.MaxUint64} {
		hello := session.Hello{ID: "w1", Epoch: epoch, Cluster: "shop", Environment: "prod"}
		_, why := s.greet(nil, bufio.NewReader(bytes.NewReader(session.AppendFrame(nil, session.KindHello, hello.Encode()))))
		want := "worker w1 started at " + started + ", which is more than 10m0s ahead of this relay's clock: compare the clocks of both hosts, set the wrong one, then restart the worker"
		if why == nil || why.Code != refusedEpoch || why.Text != want {
			t.Errorf("%v, want %s", why, want)
		}
	}
}

func TestOneSourceTakesNoMoreSessionsThanItsShareAndAnotherStillConnects(t *testing.T) {
	fleet := &Fleet{cfg: membership.Config{ID: "r1", MaxMembers: math.MaxInt}, own: log{list: *newList()}, left: map[instance]struct{}{}}
	fleet.snapshots.Store(membership.NewSnapshot(1, "r1", nil))
	s := &Server{fleet: fleet, gauge: prometheus.NewGauge(prometheus.GaugeOpts{}), held: map[*held]struct{}{}, byID: map[string][]*held{}, sources: map[netip.Prefix]int{}}
	session := func(id int, from string) *held {
		host := netip.MustParseAddr(from)
		return &held{source: handshake.SourceOf(host), of: listed{instance: instance{fmt.Sprintf("w%d", id), 1}, host: host}}
	}
	for name, addrs := range map[string][2]string{"IPv4": {"10.0.0.1", "10.0.0.2"}, "networks of IPv6": {"2001:db8::1", "2001:db8:0:1::1"}} {
		var all []*held
		for i := range sessionsPerSource {
			h := session(i, addrs[0])
			if why := s.enter(h); why != nil {
				t.Fatalf("%s: session %d: %v", name, i, why)
			}
			all = append(all, h)
		}
		if why := s.enter(session(sessionsPerSource, addrs[0])); why == nil || why.Code != refusedSource {
			t.Errorf("%s: one more: %v, want %s", name, why, refusedSource)
		}
		other := session(sessionsPerSource+1, addrs[1])
		if why := s.enter(other); why != nil {
			t.Errorf("%s: of another source: %v", name, why)
		}
		s.leave(all[0], true)
		again := session(sessionsPerSource+2, addrs[0])
		if why := s.enter(again); why != nil {
			t.Errorf("%s: after one has ended: %v", name, why)
		}
		for _, h := range append(all[1:], other, again) {
			s.leave(h, true)
		}
	}
	if len(s.sources) != 0 || len(s.held) != 0 {
		t.Errorf("%d sources and %d sessions are left", len(s.sources), len(s.held))
	}
}

func TestCertificatesOfWorkersThatAreGoneMakeRoomBeforeNewOnesAreRefused(t *testing.T) {
	const members = 100
	f := viewOf("r1", members)
	t.Cleanup(f.lines.Stop)
	f.certificates = map[keyID]*identity.Certified{}
	for i := range 2*members + 2 {
		f.certificates[keyID{byte(i), byte(i >> 8)}] = nil
	}
	if f.sweep(time.Now()); len(f.certificates) > 0 {
		t.Errorf("%d certificates of no worker are kept; learn takes %d", len(f.certificates), 4*members)
	}
}

func TestARecordIsKeptWhileItsWorkerAttaches(t *testing.T) {
	f := viewOf("r1", 100)
	t.Cleanup(f.lines.Stop)
	of := instance{"w1", 1}
	f.records[of] = 1 // and the list has it a moment later
	if f.sweep(time.Now()); f.records[of] != 1 {
		t.Error("the record is forgotten")
	}
}
