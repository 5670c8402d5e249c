package api

import (
	"fmt"
	"slices"
	"testing"
)

func TestAQuantileLiesInItsBucket(t *testing.T) {
	h := histogram{total: 100, buckets: []LatencyBucket{{UpToMs: 1, Requests: 40}, {UpToMs: 2, Requests: 60}, {UpToMs: 4, Requests: 60}, {UpToMs: 8, Requests: 98}}}
	for q, want := range map[float64]float64{0.2: 0.5, 0.5: 1.5, 0.79: 6, 0.99: 8} {
		if got := h.quantile(q); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if got := (histogram{}).quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// A refused request counts as a request and has no latency.
func TestRefusedRequestsMakeNoServiceSlow(t *testing.T) {
	at := func(answers, refused uint64) *Traffic {
		return &Traffic{Services: []ServiceTraffic{{Service: "echo", Counts: Counts{Requests: answers + refused, Errors: refused}, Answers: &answers,
			Latency: []LatencyBucket{{UpToMs: 5, Requests: answers}, {UpToMs: 10_000, Requests: answers}}}}}
	}
	for _, c := range []struct{ answers, refused uint64 }{{95, 5}, {40, 60}, {0, 10}} {
		if got := ServiceRows(at(100, 0), at(100+c.answers, c.refused))[0]; got.P50Ms > 5 || got.P99Ms > 5 || got.Requests != c.answers+c.refused {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if got := ServiceRows(at(0, 0), at(0, 10))[0]; got.P50Ms != 0 || got.P99Ms != 0 {
		t.Errorf("without an answer so far: %+v", got)
	}
	older := at(10, 0)
	older.Services[0].Answers = nil
	if got := ServiceRows(&Traffic{}, older)[0]; got.P99Ms != 4.95 {
		t.Errorf("a relay of an older release: %+v", got)
	}
}

func TestCountersThatBeganAgainCountFromZero(t *testing.T) {
	peer := func(requests, failures uint64) []Peer {
		return []Peer{{Node: "w1", State: "active", Requests: requests, Failures: failures}}
	}
	at := func(peers []Peer, requests uint64) *Traffic {
		return &Traffic{Services: []ServiceTraffic{{Service: "echo", Counts: Counts{Requests: requests}, Peers: peers}}}
	}
	for _, c := range []struct {
		before, now []Peer
		want        uint64
	}{{peer(10, 1), peer(14, 2), 4}, {peer(10, 1), peer(3, 0), 3}, {nil, peer(5, 0), 5}} {
		if got := WorkerRows(at(c.before, 0), at(c.now, 0), ""); len(got) != 1 || got[0].Requests != c.want {
			t.Errorf("%+v, want %d", got, c.want)
		}
	}
	if got := ServiceRows(&Traffic{}, at(nil, 7)); got[0].Requests != 7 {
		t.Errorf("%+v", got)
	}
}

func TestTheWorstStateOfAWorkerIsShownAndItsServicesAreAddedUp(t *testing.T) {
	now := &Traffic{Services: []ServiceTraffic{
		{Service: "a", Peers: []Peer{{Node: "w1", State: "active", Requests: 2, InFlight: 1, EWMAms: 3}}},
		{Service: "b", Peers: []Peer{{Node: "w1", State: "evicted", Requests: 5, InFlight: 2, EWMAms: 1}}},
	}}
	if got := WorkerRows(&Traffic{}, now, "")[0]; got.Requests != 7 || *got.InFlight != 3 || got.EWMAMs != 3 || got.State != "evicted" {
		t.Errorf("%+v", got)
	}
	if got := WorkerRows(&Traffic{}, now, "a")[0]; got.Requests != 2 || got.State != "active" {
		t.Errorf("%+v", got)
	}
}

// Clients choose names and addresses.
func TestTheCallersOfAWindowAreBounded(t *testing.T) {
	c := &Callers{}
	for i := range mostCallers + 7 {
		c.Add(&Call{Caller: fmt.Sprint("c", i), FirstByteMs: 3})
	}
	c.Add(&Call{Caller: "c0", Failed: true, TotalMs: 20_000})
	rows := map[string]TopRow{}
	for _, r := range c.Next() {
		rows[r.Name] = r
	}
	if len(rows) != mostCallers+1 || rows[otherCallers].Requests != 7 || rows["c0"].Requests != 2 || rows["c0"].Errors != 1 || rows["c0"].P99Ms != 10_000 || rows["c1"].P50Ms != 3.75 {
		t.Errorf("%d rows, others %+v, c0 %+v, c1 %+v", len(rows), rows[otherCallers], rows["c0"], rows["c1"])
	}
	c.Add(&Call{From: "r2"})
	c.Add(&Call{})
	var names []string
	for _, r := range c.Next() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	if want := []string{"(by r2)", "(unknown)"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
