package membership

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/membership/identity"
)

func TestWhoGossipsOtherThanItsCertificateSaysIsKeptOut(t *testing.T) {
	honest := Member{ID: "w1", Epoch: 1, Role: RoleWorker, Datacenter: "ams"}
	liar := Member{ID: "w2", Epoch: 1, Role: RoleRelay, Datacenter: "ams"}
	moved := Member{ID: "w3", Epoch: 1, Role: RoleWorker, Datacenter: "fra"}
	unseen := Member{ID: "w4", Epoch: 1, Role: RoleRelay}
	all := func() []Member { return []Member{honest, liar, moved, unseen} }

	q := newQuarantine()
	if trusted, caught := q.filter(all()); len(trusted) != 4 || caught != nil {
		t.Fatalf("without any certificate: %v, %v", trusted, caught)
	}
	for _, m := range []Member{honest, liar, moved} {
		claims := identity.Claims{Node: m.ID, Role: "worker", Cluster: "c", Environment: "e", Datacenter: "ams"}
		if !q.note(verdict{m.Instance(), claims}) {
			t.Fatalf("%s: no news", m.ID)
		}
		if q.note(verdict{m.Instance(), claims}) {
			t.Fatalf("%s: the same verdict is news again", m.ID)
		}
	}
	trusted, caught := q.filter(all())
	if got := IDs(trusted); !slices.Equal(got, []string{"w1", "w4"}) {
		t.Errorf("shown: %v", got)
	}
	if !strings.Contains(caught[liar], `role "relay", its certificate says "worker"`) || !strings.Contains(caught[moved], `datacenter "fra", its certificate says "ams"`) {
		t.Errorf("caught: %v", caught)
	}
	if _, caught := q.filter(all()); caught != nil {
		t.Errorf("caught again: %v", caught)
	}
	if trusted, _ := q.filter([]Member{honest}); len(trusted) != 1 || len(q.certified) != 1 {
		t.Errorf("verdicts on members that are gone are kept: %v", q.certified)
	}
}
