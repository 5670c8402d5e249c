package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
)

func TestAQuantileLiesInItsBucket(t *testing.T) {
	h := histogram{total: 100, buckets: []api.LatencyBucket{{UpToMs: 1, Requests: 40}, {UpToMs: 2, Requests: 60}, {UpToMs: 4, Requests: 60}, {UpToMs: 8, Requests: 98}}}
	for q, want := range map[float64]float64{0.2: 0.5, 0.5: 1.5, 0.79: 6, 0.99: 8} {
		if got := h.quantile(q); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if got := (histogram{}).quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestCountersThatBeganAgainCountFromZero(t *testing.T) {
	peer := func(requests, failures uint64) []api.Peer {
		return []api.Peer{{Node: "w1", State: "active", Requests: requests, Failures: failures}}
	}
	at := func(peers []api.Peer, requests uint64) *api.Traffic {
		return &api.Traffic{Services: []api.ServiceTraffic{{Service: "echo", Counts: api.Counts{Requests: requests}, Peers: peers}}}
	}
	for _, c := range []struct {
		before, now []api.Peer
		want        uint64
	}{{peer(10, 1), peer(14, 2), 4}, {peer(10, 1), peer(3, 0), 3}, {nil, peer(5, 0), 5}} {
		if got := workerRows(at(c.before, 0), at(c.now, 0), ""); len(got) != 1 || got[0].Requests != c.want {
			t.Errorf("%+v, want %d", got, c.want)
		}
	}
	if got := serviceRows(&api.Traffic{}, at(nil, 7)); got[0].Requests != 7 {
		t.Errorf("%+v", got)
	}
}

func TestTheWorstStateOfAWorkerIsShownAndItsServicesAreAddedUp(t *testing.T) {
	now := &api.Traffic{Services: []api.ServiceTraffic{
		{Service: "a", Peers: []api.Peer{{Node: "w1", State: "active", Requests: 2, InFlight: 1, EWMAms: 3}}},
		{Service: "b", Peers: []api.Peer{{Node: "w1", State: "evicted", Requests: 5, InFlight: 2, EWMAms: 1}}},
	}}
	if got := workerRows(&api.Traffic{}, now, "")[0]; got.Requests != 7 || *got.InFlight != 3 || got.EWMAMs != 3 || got.State != "evicted" {
		t.Errorf("%+v", got)
	}
	if got := workerRows(&api.Traffic{}, now, "a")[0]; got.Requests != 2 || got.State != "active" {
		t.Errorf("%+v", got)
	}
}

// The lines come from a relay, whose clients choose names and addresses.
func TestTheCallersOfAWindowAreBounded(t *testing.T) {
	c := &callers{rows: map[string]*callerRow{}}
	take := func(line string) {
		t.Helper()
		if err := c.take([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range mostCallers + 7 {
		take(fmt.Sprintf(`{"ringway.caller":"c%d","http.response.status_code":200,"ringway.first_byte_ms":3}`, i))
	}
	take(`{"ringway.caller":"c0","error.type":"timeout","ringway.duration_ms":20000}`)
	take(`{"ringway.caller":"c0","rpc.response.status_code":"UNAVAILABLE","http.response.status_code":200}`)
	take(`{"ringway.tap.dropped":9}`)
	if err := c.take([]byte("<html>")); err == nil {
		t.Error("a line that is no record was taken")
	}
	rows, dropped, err := c.next()
	if err != nil || dropped != 9 || len(rows) != mostCallers+1 || rows[otherCallers].requests != 7 || rows["c0"].requests != 3 || rows["c0"].errors != 2 {
		t.Errorf("%d rows, others %+v, c0 %+v, dropped %d, %v", len(rows), rows[otherCallers], rows["c0"], dropped, err)
	}
	take(`{"ringway.forwarded_by":"r2"}`)
	take(`{}`)
	if rows, dropped, _ = c.next(); len(rows) != 2 || rows["(by r2)"] == nil || rows["(unknown)"] == nil || dropped != 0 {
		t.Errorf("%v", rows)
	}
}

func TestRowsAreInTheOrderAskedFor(t *testing.T) {
	few, many := int64(1), int64(5)
	rows := []TopRow{
		{Name: "w10", Requests: 5, Errors: 0, InFlight: &few, P99Ms: 1}, {Name: "w2", Requests: 5, Errors: 2, InFlight: &few, P99Ms: 9}, {Name: "w1", Requests: 1, InFlight: &many},
	}
	for order, want := range map[string]string{"requests": "w2 w10 w1", "errors": "w2 w1 w10", "in-flight": "w1 w2 w10", "latency": "w2 w10 w1", "name": "w1 w2 w10"} {
		doc := &TopDocument{Rows: append([]TopRow{}, rows...)}
		(&top{sort: order}).finish(doc, 2*time.Second)
		var names []string
		for _, r := range doc.Rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want || doc.Rows[0].RequestsPerSecond != float64(doc.Rows[0].Requests)/2 {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
}
