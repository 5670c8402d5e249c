package routing

import (
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
)

func TestWhileCutOffWhatFailedStaysAndWhatLeftIsGone(t *testing.T) {
	departed := func(id string, reason membership.Reason) membership.Departure {
		return membership.Departure{Member: membership.Member{ID: id}, Reason: reason, At: time.Unix(0, 0)}
	}
	s := membership.NewSnapshot(1, "r1", []membership.Member{{ID: "r1"}}).WithDepartures([]membership.Departure{
		departed("r2", membership.Failed), departed("r3", membership.Left), departed("w1", membership.Failed), departed("w2", membership.Left),
	}, true)

	relays := keepFailedRelays([]membership.Member{{ID: "r2"}, {ID: "r3"}, {ID: "r1"}}, []membership.Member{{ID: "r1"}, {ID: "r0"}}, s)
	if got := membership.IDs(relays); !slices.Equal(got, []string{"r0", "r1", "r2"}) {
		t.Errorf("relays %v", got)
	}

	before := []advertise.Endpoint{{NodeID: "w1", Address: "old"}, {NodeID: "w2"}, {NodeID: "w3", Address: "old"}, {NodeID: "w4"}}
	now := []advertise.Endpoint{{NodeID: "w3", Address: "new"}, {NodeID: "w5"}}
	var ids []string
	for _, e := range keepFailedEndpoints("echo", before, now, s) {
		ids = append(ids, e.NodeID)
		if e.NodeID == "w3" && e.Address != "new" {
			t.Error("an endpoint that is still there is shown as it was")
		}
	}
	if want := ring.Order("echo", []string{"w1", "w3", "w5"}); !slices.Equal(ids, want) {
		t.Errorf("endpoints %v, want %v: w1 failed, w2 left, w4 withdrew", ids, want)
	}
	if same := keepFailedEndpoints("echo", now, now, s); !sameSlice(same, now) {
		t.Error("the slice was copied although nothing is missing")
	}
}
