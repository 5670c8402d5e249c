package membership

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

func TestWhoGossipsOtherThanItsCertificateSaysIsKeptOut(t *testing.T) {
	honest := Member{ID: "w1", Epoch: 1, Role: RoleWorker, Datacenter: "ams"}
	liar := Member{ID: "w2", Epoch: 1, Role: RoleRelay, Datacenter: "ams"}
	moved := Member{ID: "w3", Epoch: 1, Role: RoleWorker, Datacenter: "fra"}
	unseen := Member{ID: "w4", Epoch: 1, Role: RoleRelay}
	all := func() []Member { return []Member{honest, liar, moved, unseen} }

	now := time.Unix(1e9, 0)
	q := newQuarantine()
	if trusted, caught := q.filter(all(), now); len(trusted) != 4 || caught != nil {
		t.Fatalf("without any certificate: %v, %v", trusted, caught)
	}
	for _, m := range []Member{honest, liar, moved} {
		claims := identity.Claims{Node: m.ID, Role: "worker", Cluster: "c", Environment: "e", Datacenter: "ams"}
		if !q.note(verdict{m.Instance(), claims}, now) {
			t.Fatalf("%s: no news", m.ID)
		}
		if q.note(verdict{m.Instance(), claims}, now) {
			t.Fatalf("%s: the same verdict is news again", m.ID)
		}
	}
	trusted, caught := q.filter(all(), now)
	if got := IDs(trusted); !slices.Equal(got, []string{"w1", "w4"}) {
		t.Errorf("shown: %v", got)
	}
	if !strings.Contains(caught[liar], `role "relay", its certificate says "worker"`) || !strings.Contains(caught[moved], `datacenter "fra", its certificate says "ams"`) {
		t.Errorf("caught: %v", caught)
	}
	if _, caught := q.filter(all(), now); caught != nil {
		t.Errorf("caught again: %v", caught)
	}
	// What was shown may be ahead of the news of its holder, but not for ever.
	if _, _ = q.filter([]Member{honest}, now.Add(shownFor)); len(q.certified) != 3 {
		t.Errorf("verdicts are forgotten too soon: %v", q.certified)
	}
	if trusted, _ := q.filter([]Member{honest}, now.Add(shownFor+1)); len(trusted) != 1 || len(q.certified) != 1 {
		t.Errorf("verdicts on members that are gone are kept: %v", q.certified)
	}
}
