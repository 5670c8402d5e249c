package identity

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// HS-B5 and the design: all sixteen pairs.
func TestTheConnectionMatrixIsTheDocumentedOne(t *testing.T) {
	const want = `initiator \ target  client  gate    relay     worker
client              no      submit  submit    no
gate                push    peer    forward   no
relay               push    report  peer      dispatch
worker              no      no      progress  no
`
	if got := ConnectionMatrix().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var b bytes.Buffer
	if n, err := ConnectionMatrix().WriteTo(&b); err != nil || b.String() != want || n != int64(len(want)) {
		t.Errorf("WriteTo wrote %d bytes, %v:\n%s", n, err, b.String())
	}
}

func TestEveryPairHasItsAction(t *testing.T) {
	for _, c := range []struct {
		initiator, target Role
		want              Action
	}{
		{RoleClient, RoleClient, ""}, {RoleClient, RoleGate, "submit"}, {RoleClient, RoleRelay, "submit"}, {RoleClient, RoleWorker, ""},
		{RoleGate, RoleClient, "push"}, {RoleGate, RoleGate, "peer"}, {RoleGate, RoleRelay, "forward"}, {RoleGate, RoleWorker, ""},
		{RoleRelay, RoleClient, "push"}, {RoleRelay, RoleGate, "report"}, {RoleRelay, RoleRelay, "peer"}, {RoleRelay, RoleWorker, "dispatch"},
		{RoleWorker, RoleClient, ""}, {RoleWorker, RoleGate, ""}, {RoleWorker, RoleRelay, "progress"}, {RoleWorker, RoleWorker, ""},
	} {
		got, ok := Allowed(c.initiator, c.target)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s to %s: got %q, %v, want %q", c.initiator, c.target, got, ok, c.want)
		}
		if slices.Contains(Targets(c.initiator), c.target) != ok {
			t.Errorf("targets of %s are %v", c.initiator, Targets(c.initiator))
		}
		if slices.Contains(Sources(c.target), c.initiator) != ok {
			t.Errorf("sources of %s are %v", c.target, Sources(c.target))
		}
	}
}

func TestARoleThatDoesNotExistMayNothing(t *testing.T) {
	for _, r := range []Role{"", "manager", "Relay", "relay "} {
		for _, known := range Roles() {
			if _, ok := Allowed(r, known); ok {
				t.Errorf("%q may connect to %s", r, known)
			}
			if _, ok := Allowed(known, r); ok {
				t.Errorf("%s may connect to %q", known, r)
			}
		}
		if len(Targets(r)) > 0 || len(Sources(r)) > 0 || r.Valid() || r.Member() {
			t.Errorf("%q is a role", r)
		}
	}
}

func TestTheMatrixCannotBeChangedFromOutside(t *testing.T) {
	m, rs := ConnectionMatrix(), Roles()
	m[0][3], rs[0] = ActionSubmit, "boss"
	if _, ok := Allowed(RoleClient, RoleWorker); ok || Roles()[0] != RoleClient {
		t.Error("a copy that was changed changed the original")
	}
}

// HS-B9.
func TestTheMatrixAsJSONListsOnlyWhatIsAllowed(t *testing.T) {
	got, err := json.Marshal(ConnectionMatrix().Map())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"client":{"gate":"submit","relay":"submit"},"gate":{"client":"push","gate":"peer","relay":"forward"},` +
		`"relay":{"client":"push","gate":"report","relay":"peer","worker":"dispatch"},"worker":{"relay":"progress"}}`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}
