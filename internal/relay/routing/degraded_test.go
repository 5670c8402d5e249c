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

	of := func(ids ...string) (out []*advertise.Endpoint) {
		for _, id := range ids {
			out = append(out, &advertise.Endpoint{Worker: &advertise.Worker{NodeID: id}})
		}
		return out
	}
	ids := func(endpoints []*advertise.Endpoint) (out []string) {
		for _, e := range endpoints {
			out = append(out, e.NodeID)
		}
		return out
	}
	nothing := new(advertise.View).Endpoints("echo")
	if got := ids(failedEndpoints(of("w1", "w2", "w4"), nothing, s)); !slices.Equal(got, []string{"w1"}) {
		t.Errorf("kept %v, want w1 alone: it failed, w2 left, w4 withdrew", got)
	}
	if got, want := ids(inRingOrder("echo", of("w1", "w3", "w5"))), ring.Order("echo", []string{"w1", "w3", "w5"}); !slices.Equal(got, want) {
		t.Errorf("endpoints %v, want %v", got, want)
	}
}
