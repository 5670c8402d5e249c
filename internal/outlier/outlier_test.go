package outlier_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

// limits are the defaults of balancer and pool.
var limits = outlier.Limits{InARow: 3, Share: 0.05}

func record(inARow int, failures, requests float64) outlier.Record {
	return outlier.Record{Count: outlier.Count{Failures: failures, Requests: requests}, InARow: inARow}
}

// of sums up nine endpoints that have had this many requests together. The last request of
// the given number of them failed.
func of(requests, share float64, failing int) (o outlier.Others) {
	for i := range 9 {
		o.Add(record(min(1, max(0, failing-i)), share*requests/9, requests/9), limits)
	}
	return o
}

func TestAnEndpointIsComparedWithTheOthersAndWithWhatIsElsewhere(t *testing.T) {
	const unknown = 1.0 / 6 // what the balancer expects of a tier without requests
	well := of(100, 0, 0)
	single := func(failures, requests float64) (o outlier.Others) {
		o.Add(record(0, failures, requests), limits)
		return o
	}
	// endpoints are n others that answer, and the last request of one failed.
	endpoints := func(n int) (o outlier.Others) {
		for i := range n {
			o.Add(record(1-min(i, 1), 0, 10), limits)
		}
		return o
	}
	alike := func(share float64) outlier.Others { return of(100, share, int(9*share)) }
	row, share, smaller := record(4, 4, 10), record(1, 60, 100), record(1, 40, 100)
	for _, c := range []struct {
		name                string
		one                 outlier.Record
		others              outlier.Others
		together, elsewhere float64
		want                outlier.Cause
	}{
		{"a row, all is well", row, well, 0.04, 1, outlier.FailuresInARow},
		{"a row, nothing is known of the others", row, outlier.Others{}, 0.9, 1, outlier.FailuresInARow},
		{"a row, all fail", row, alike(0.9), 0.9, 1, ""},
		{"a row, all have begun to fail", row, of(100, 0.04, 4), 0.9, 1, ""},
		{"a row, only the mean is bad", row, well, 0.9, 1, outlier.FailuresInARow},
		{"a row, all fail and those elsewhere do not", row, alike(0.1), 0.1, 0.04, outlier.FailuresInARow},
		{"a row, those elsewhere fail and the others do not", row, well, 0.04, 0.9, outlier.FailuresInARow},
		{"a row, all fail less than three times as much", row, alike(0.49), 0.49, unknown, ""},
		{"a row, all fail three times as much", row, alike(0.51), 0.51, unknown, outlier.FailuresInARow},
		{"a row, the others fail as much as allowed", row, single(5, 100), 0.04, 1, ""},
		{"a row, as many others as allowed have failed", row, endpoints(20), 0.04, 1, ""},
		{"a row, fewer others have failed", row, endpoints(21), 0.04, 1, outlier.FailuresInARow},
		{"a row, those elsewhere fail as much as allowed", row, alike(0.1), 0.1, 0.05, ""},
		{"a row, all fail exactly three times as much", row, alike(0.75), 0.75, 0.25, ""},
		{"not more in a row than allowed", record(3, 3, 10), well, 0.04, 1, ""},
		{"a share, the others fail alike", share, alike(0.6), 0.6, 1, ""},
		{"a share, the others fail less", share, alike(0.2), 0.6, 1, outlier.ErrorRate},
		{"a share that may be chance, the others fail less", share, alike(0.4), 0.6, 1, ""},
		{"a share, too little is known of the others", share, single(0, 19), 0.6, 1, ""},
		{"a share, just enough is known of the others", share, single(0, 20), 0.6, 1, outlier.ErrorRate},
		{"a share of just enough", record(1, 12, 20), well, 0.6, 0, outlier.ErrorRate},
		{"a share, those elsewhere fail as much as allowed", record(1, 100, 1000), alike(0.1), 0.1, 0.05, outlier.ErrorRate},
		{"a share of exactly three times that elsewhere", record(1, 75, 100), alike(0.75), 0.75, 0.25, outlier.ErrorRate},
		{"a share, nothing is known of those elsewhere", share, alike(0.4), 0.4, unknown, outlier.ErrorRate},
		{"a smaller share, nothing is known of those elsewhere", smaller, alike(0.4), 0.4, unknown, ""},
		{"a smaller share, those elsewhere are well", smaller, alike(0.4), 0.4, 0.01, outlier.ErrorRate},
		{"a share, those elsewhere fail alike", share, alike(0.6), 0.6, 0.6, ""},
		{"a share of too few", record(1, 19, 19), well, 0.6, 0, ""},
	} {
		c.others.Together, c.others.Elsewhere = c.together, c.elsewhere
		got, reason := limits.Verdict(c.one, c.others)
		if got != c.want || (got == "") != (reason == "") {
			t.Errorf("%s: %q because of %q, want %q", c.name, got, reason, c.want)
		}
		if got != "" && !limits.Exceeded(c.one) {
			t.Errorf("%s: the limits are not exceeded", c.name)
		}
	}
}

func TestTheLimitsAreWhatAnEndpointMayHave(t *testing.T) {
	for _, c := range []struct {
		record   outlier.Record
		exceeded bool
	}{{record(3, 3, 10), false}, {record(4, 4, 10), true}, {record(1, 60, 100), true}, {record(1, 5, 100), false}} {
		if got := limits.Exceeded(c.record); got != c.exceeded {
			t.Errorf("%+v: %t", c.record, got)
		}
	}
}

// Endpoints that look broken would excuse each other.
func TestAsManyAreLeftOutAsMayBeEvictedToo(t *testing.T) {
	for _, c := range []struct {
		name       string
		spare, bad int
		one        outlier.Record // each of the bad ones
		want       outlier.Cause
	}{
		{"two in a row, and both may be evicted", 2, 2, record(2, 4, 40), outlier.FailuresInARow},
		{"two in a row, and only one may be evicted", 1, 2, record(2, 4, 40), ""},
		{"a share", 1, 1, record(0, 40, 40), outlier.FailuresInARow},
		{"a share, and none may be evicted", 0, 1, record(0, 40, 40), ""},
		{"one failure does not look broken", 2, 2, record(1, 1, 40), ""},
	} {
		others := outlier.Others{Spare: c.spare, Elsewhere: outlier.Nowhere}
		for range c.bad {
			others.Add(c.one, limits)
		}
		others.Add(record(0, 0, 40), limits)
		if got, _ := limits.Verdict(record(4, 4, 40), others); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTheLastRequestOfAnEndpointCountsForTenSeconds(t *testing.T) {
	for age, want := range map[time.Duration]outlier.Cause{0: "", outlier.Memory - 1: "", outlier.Memory: outlier.FailuresInARow} {
		others := outlier.Others{Elsewhere: outlier.Nowhere}
		old := record(1, 1, 100)
		old.Age = age
		others.Add(old, limits)
		if got, _ := limits.Verdict(record(4, 4, 40), others); got != want {
			t.Errorf("after %v: %q, want %q", age, got, want)
		}
	}
	if record(0, 0, 0).Recent() {
		t.Error("an endpoint without requests has had one")
	}
}

func TestEvictionsInARowDoubleUntilTheEndpointWasWell(t *testing.T) {
	const longest = 30 * time.Second
	var b outlier.Backoff
	for i, c := range []struct {
		well   time.Duration
		random float64
		want   time.Duration
	}{
		{0, 0, time.Second}, {longest, 0, 2 * time.Second}, {0, 0.5, 6 * time.Second}, {0, 0, 8 * time.Second},
		{0, 0, 15 * time.Second}, {0, 0.5, 22500 * time.Millisecond},
		{longest + 1, 0.5, 1500 * time.Millisecond}, {0, 0, 2 * time.Second},
	} {
		if got := b.Next(c.well, longest, c.random); got != c.want {
			t.Errorf("eviction %d, after %v and with %v: %v, want %v", i+1, c.well, c.random, got, c.want)
		}
	}
	const day = 24 * time.Hour
	b = outlier.Backoff{}
	for k := 1; k <= 1000; k++ {
		want := day / 2
		if k < 16 {
			want = time.Second << (k - 1)
		}
		if got := b.Next(0, day, 0); got != want {
			t.Fatalf("eviction %d of a day at most: %v, want %v", k, got, want)
		}
	}
}

func Example() {
	others := outlier.Others{Elsewhere: outlier.Nowhere}
	others.Add(outlier.Record{Count: outlier.Count{Failures: 10, Requests: 1000}}, limits)
	for _, requests := range []float64{20, 100, 500} {
		one := outlier.Record{Count: outlier.Count{Failures: requests / 5, Requests: requests}}
		_, reason := limits.Verdict(one, others)
		fmt.Printf("a fifth of %v, and 1 %% of the others: %s\n", requests, cmp.Or(reason, "it may be chance"))
	}
	// Output:
	// a fifth of 20, and 1 % of the others: it may be chance
	// a fifth of 100, and 1 % of the others: 20% of 100 recent requests failed, surely more than 5%
	// a fifth of 500, and 1 % of the others: 20% of 500 recent requests failed, surely more than 5%
}
