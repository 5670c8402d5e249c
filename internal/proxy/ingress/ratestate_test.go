package ingress

import (
	"fmt"
	"slices"
	"testing"
)

func TestTheLimitsOfAServiceAreThoseThatItsRequestsCountFor(t *testing.T) {
	requests := &Requests{
		RateLimits: []RateLimit{
			{Service: "*", Rate: "9/s"}, {Service: "echo", Rate: "100/s"}, {Service: "other", Rate: "8/s"},
			{Service: "*", Caller: "*", Rate: "30/m", Burst: 10}, {Service: "echo", Caller: "*", Rate: "60/m"},
			{Service: "*", Caller: "batch", Rate: "2/s"}, {Service: "other", Caller: "batch", Rate: "3/s"}, {Service: "*", Caller: "alice", Rate: "4/s"}, {Service: "echo", Caller: "alice", Rate: "5/s"},
			{Service: "*", Caller: "2001:db8::7", Rate: "6/s"},
		},
		Routes: []Route{{PathPrefix: "/a", Service: "echo", Rate: "7/s"}, {PathPrefix: "/b", Service: "other", Rate: "7/s"}, {PathPrefix: "/c", Service: "echo"}},
	}
	rates := NewRates(nil)
	newRateLimits(requests, rates).limits[[2]string{"batch", "*"}].refused.Add(3)
	s := known(t, "echo")
	s.Limited.Add(4)
	want := []string{"service  100/s 4", "caller * 60/m 0", "caller batch 2/s 3", "caller alice 5/s 0", "caller 2001:db8::/64 6/s 0", "route /a 7/s 0"}
	var got []string
	for _, l := range rates.Of(s, requests) {
		got = append(got, fmt.Sprintf("%s %s%s %s %d", l.Of, l.Caller, l.Route.PathPrefix, l.Rate, l.Refused))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
