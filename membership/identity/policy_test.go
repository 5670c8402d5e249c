package identity

import (
	"errors"
	"testing"
)

func refusalOf(t *testing.T, err error) *RefusalError {
	t.Helper()
	var refusal *RefusalError
	if !errors.As(err, &refusal) {
		t.Fatalf("error %v is no RefusalError", err)
	}
	return refusal
}

func TestClusterIsJudgedBeforeEnvironmentAndThatBeforeTheRole(t *testing.T) {
	p := Policy{Self: claimsOf(RoleWorker, "w")}
	peer := Claims{Role: RoleClient, Cluster: "staging", Environment: "us", Node: "c"}
	for _, step := range []struct {
		fix          func()
		field        Reason
		ours, theirs string
	}{
		{func() {}, reasonCluster, "prod", "staging"},
		{func() { peer.Cluster = "prod" }, reasonEnvironment, "eu", "us"},
		{func() { peer.Environment = "eu" }, reasonMatrix, "worker", "client"},
	} {
		step.fix()
		r := refusalOf(t, p.Check(peer))
		if r.Field != step.field || r.Ours != step.ours || r.Theirs != step.theirs || r.Node != "c" {
			t.Errorf("got %+v, want %+v", r, step)
		}
	}
	peer.Role = RoleRelay
	if err := p.Check(peer); err != nil {
		t.Error(err)
	}
}

func TestBothEndsOfAConnectionAgreeOnTheMatrix(t *testing.T) {
	for _, initiator := range Roles() {
		for _, target := range Roles() {
			_, want := allowed(initiator, target)
			i, a := claimsOf(initiator, "i"), claimsOf(target, "a")
			if got := (Policy{Self: i}).check(a, outbound) == nil; got != want {
				t.Errorf("%s opening to %s: %v, want %v", initiator, target, got, want)
			}
			if got := (Policy{Self: a}).Check(i) == nil; got != want {
				t.Errorf("%s opened by %s: %v, want %v", target, initiator, got, want)
			}
		}
	}
}

func TestGossipIsOpenBetweenAnyTwoMembersOfOneCluster(t *testing.T) {
	for _, ours := range Roles() {
		for _, theirs := range Roles() {
			for _, direction := range []direction{inbound, outbound} {
				err := Policy{Self: claimsOf(ours, "a"), Mode: gossip}.check(claimsOf(theirs, "b"), direction)
				if want := ours != RoleClient && theirs != RoleClient; (err == nil) != want {
					t.Errorf("%s with %s, %s: %v", ours, theirs, direction, err)
				} else if err != nil && refusalOf(t, err).Field != reasonRole {
					t.Errorf("%s with %s: %v", ours, theirs, err)
				}
			}
		}
	}
	// HS-B6: never across environments, in any mode.
	other := claimsOf(RoleRelay, "b")
	other.Environment = "us"
	if err := (Policy{Self: claimsOf(RoleRelay, "a"), Mode: gossip}).Check(other); refusalOf(t, err).Field != reasonEnvironment {
		t.Error(err)
	}
}

func TestAListenerCanAdmitFewerRoles(t *testing.T) {
	p := Policy{Self: claimsOf(RoleRelay, "a"), Only: []Role{RoleRelay, RoleGate}}
	for role, want := range map[Role]bool{RoleRelay: true, RoleGate: true, RoleClient: false, RoleWorker: false} {
		err := p.Check(claimsOf(role, "b"))
		if (err == nil) != want {
			t.Errorf("%s: %v", role, err)
		}
		if err != nil && err.Error() != `role mismatch: ours "relay, gate", theirs "`+string(role)+`" (b)` {
			t.Error(err)
		}
	}
}

func TestTheZeroPolicyAndUnknownModesRefuseAllPeers(t *testing.T) {
	for _, p := range []Policy{
		{}, {Mode: gossip}, {Self: claimsOf(RoleRelay, "a"), Mode: 7},
		{Self: Claims{Role: RoleRelay, Environment: "eu"}}, {Self: Claims{Role: RoleRelay, Cluster: "prod"}},
	} {
		for _, peer := range []Claims{
			{}, {Role: RoleRelay}, {Role: RoleRelay, Environment: "eu"}, {Role: RoleRelay, Cluster: "prod"}, claimsOf(RoleRelay, "b"),
		} {
			for _, d := range []direction{inbound, outbound, ""} {
				if p.check(peer, d) == nil {
					t.Errorf("%+v admits %+v", p, peer)
				}
			}
		}
	}
}

func TestTheClaimsInGossipAreComparedWithTheCertificate(t *testing.T) {
	peer := claimsOf(RoleWorker, "w-1")
	for _, c := range []struct {
		expected Expected
		want     Reason
	}{
		{Expected{}, ""},
		{Expected{Node: "w-1", Role: RoleWorker, Datacenter: "fra"}, ""},
		{Expected{Node: "w-2", Role: RoleRelay, Datacenter: "ams"}, reasonNode},
		{Expected{Node: "w-1", Role: RoleRelay, Datacenter: "ams"}, reasonRole},
		{Expected{Node: "w-1", Role: RoleWorker, Datacenter: "ams"}, reasonDatacenter},
		{Expected{Datacenter: "ams"}, reasonDatacenter},
	} {
		err := c.expected.check(peer)
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.expected, err)
			}
			continue
		}
		if r := refusalOf(t, err); r.Field != c.want {
			t.Errorf("%+v: %v, want %s", c.expected, err, c.want)
		}
	}
	peer.Datacenter = ""
	if err := (Expected{Datacenter: "ams"}).check(peer); err != nil {
		t.Errorf("a certificate without a datacenter disagrees: %v", err)
	}
}

func TestARefusalReadsLikeThoseOfMembership(t *testing.T) {
	for want, r := range map[string]*RefusalError{
		`cluster mismatch: ours "staging", theirs "prod" (relay-7, 10.0.1.5:7400): give both a certificate of one cluster`: {Field: reasonCluster, Ours: "staging", Theirs: "prod", Node: "relay-7", Addr: "10.0.1.5:7400"},
		`node mismatch: ours "a", theirs "b" (b)`: {Field: reasonNode, Ours: "a", Theirs: "b", Node: "b"},
		`connection not allowed: ours "worker", theirs "client": a client may connect to: gate, relay (c-1, 10.0.1.5:50001)`: {Field: reasonMatrix, Ours: "worker", Theirs: "client", Node: "c-1", Addr: "10.0.1.5:50001", Cause: errors.New("a client may connect to: gate, relay")},
		`certificate refused: not yet valid: x (10.0.1.5:1)`:                                                                 {Field: reasonNotYetValid, Addr: "10.0.1.5:1", Cause: errors.New("x")},
		`certificate refused: no certificate: x`:                                                                             {Field: reasonNoCertificate, Cause: errors.New("x")},
	} {
		if got := r.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
