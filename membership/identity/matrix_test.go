package identity

import (
	"encoding/json"
	"slices"
	"testing"
)

// HS-B5 and the design: all pairs.
func TestEveryPairHasItsAction(t *testing.T) {
	for _, c := range []struct {
		initiator, target Role
		want              string
	}{
		{RoleClient, RoleClient, ""}, {RoleClient, RoleGate, "submit"}, {RoleClient, RoleRelay, "submit"}, {RoleClient, RoleWorker, ""},
		{RoleGate, RoleClient, "push"}, {RoleGate, RoleGate, "peer"}, {RoleGate, RoleRelay, "forward"}, {RoleGate, RoleWorker, ""},
		{RoleRelay, RoleClient, "push"}, {RoleRelay, RoleGate, "report"}, {RoleRelay, RoleRelay, "peer"}, {RoleRelay, RoleWorker, "dispatch"},
		{RoleWorker, RoleClient, ""}, {RoleWorker, RoleGate, ""}, {RoleWorker, RoleRelay, "progress"}, {RoleWorker, RoleWorker, ""},
		{RoleClient, RoleObserver, ""}, {RoleGate, RoleObserver, ""}, {RoleRelay, RoleObserver, ""}, {RoleWorker, RoleObserver, ""}, {RoleObserver, RoleObserver, ""},
		{RoleObserver, RoleClient, ""}, {RoleObserver, RoleGate, "submit"}, {RoleObserver, RoleRelay, "submit"}, {RoleObserver, RoleWorker, "dispatch"},
	} {
		got, ok := allowed(c.initiator, c.target)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s to %s: got %q, %v, want %q", c.initiator, c.target, got, ok, c.want)
		}
		if all := targets(c.initiator); slices.Contains(all, c.target) != ok {
			t.Errorf("targets of %s are %v", c.initiator, all)
		}
	}
}

func TestARoleThatDoesNotExistMayNothing(t *testing.T) {
	for _, r := range []Role{"", "manager", "Relay", "relay "} {
		for _, known := range Roles() {
			if _, ok := allowed(r, known); ok {
				t.Errorf("%q may connect to %s", r, known)
			}
			if _, ok := allowed(known, r); ok {
				t.Errorf("%s may connect to %q", known, r)
			}
		}
		if len(targets(r)) > 0 || r.valid() || r.Member() {
			t.Errorf("%q is a role", r)
		}
	}
}

func TestTheMatrixCannotBeChangedFromOutside(t *testing.T) {
	m, rs := ConnectionMatrix(), Roles()
	m[RoleClient][RoleWorker], rs[0] = "submit", "boss"
	if _, ok := allowed(RoleClient, RoleWorker); ok || Roles()[0] != RoleClient {
		t.Error("a copy that was changed changed the original")
	}
}

// HS-B9.
func TestTheMatrixAsJSONListsOnlyWhatIsAllowed(t *testing.T) {
	got, err := json.Marshal(ConnectionMatrix())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"client":{"gate":"submit","relay":"submit"},"gate":{"client":"push","gate":"peer","relay":"forward"},` +
		`"observer":{"gate":"submit","relay":"submit","worker":"dispatch"},` +
		`"relay":{"client":"push","gate":"report","relay":"peer","worker":"dispatch"},"worker":{"relay":"progress"}}`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}
