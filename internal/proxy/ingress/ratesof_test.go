package ingress

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/routing"
)

func TestTheLimitsOfAServiceAreThoseThatItsRequestsCountFor(t *testing.T) {
	requests := &Requests{
		RateLimits: []RateLimit{
			{Service: "*", Rate: "9/s"}, {Service: "echo", Rate: "100/s"}, {Service: "other", Rate: "8/s"},
			{Service: "*", Caller: "*", Rate: "30/m", Burst: 10}, {Service: "echo", Caller: "*", Rate: "60/m"},
			{Service: "*", Caller: "batch", Rate: "2/s"}, {Service: "other", Caller: "batch", Rate: "3/s"}, {Service: "*", Caller: "alice", Rate: "4/s"}, {Service: "echo", Caller: "alice", Rate: "5/s"},
		},
		Routes: []Route{{PathPrefix: "/a", Service: "echo", Rate: "7/s"}, {PathPrefix: "/b", Service: "other", Rate: "7/s"}, {PathPrefix: "/c", Service: "echo"}},
	}
	rates := NewRates(nil)
	newRateLimits(requests, rates).limits[[2]string{"batch", "*"}].refused.Add(3)
	s := known(t, "echo")
	s.Limited.Add(4)
	want := []api.RateLimit{
		{Of: "service", Rate: "100/s", Refused: 4}, {Of: "caller", Subject: "*", Rate: "60/m"},
		{Of: "caller", Subject: "batch", Rate: "2/s", Refused: 3}, {Of: "caller", Subject: "alice", Rate: "5/s"},
		{Of: "route", Subject: "/a", Rate: "7/s"},
	}
	of := func() []api.RateLimit { return rates.Of(s, requests, func(r Route) string { return r.PathPrefix }) }
	if got := of(); !slices.Equal(got, want) {
		t.Errorf("a relay that forwards: %+v, want %+v", got, want)
	}
	if err := s.SetRoute(&routing.Route{}, 0); err != nil {
		t.Fatal(err)
	}
	for i, per := range []float64{100, 1, 2, 5, 7} {
		want[i].Share, want[i].PerSecond = 1, per
	}
	if got := of(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the only relay: %+v, want %+v", got, want)
	}
}
