package relaypool

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

func TestTheDefaultsAreTheDocumentedOnesAndValid(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Selector = "gate-1"
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	want(t, "defaults", fmt.Sprint(cfg.MinPeersPerTier, cfg.Candidates, cfg.Primaries, cfg.Backups, cfg.Alpha,
		cfg.ErrorRateThreshold, cfg.ConsecutiveFailures, cfg.LatencyMultiplier, cfg.BaselineLatency, cfg.MaxEviction, cfg.MaxAge,
		cfg.RefreshInterval, cfg.RefreshJitter, cfg.ReplenishMin, cfg.ReplenishMax, cfg.MaxPerPeer, cfg.MaxTotal,
		cfg.IdleTimeout, cfg.ConnectTimeout, cfg.MaxBindings, cfg.BindingTTL, cfg.BindingIdle),
		"3 8 3 2 0.2 0.05 3 3 10ms 30s 1h0m0s 1m0s 5s 100ms 500ms 5 100 5m0s 10s 10000 1h0m0s 5m0s")
}

func TestEveryBadSettingIsReportedInOneSortedErrorWithItsValueAndTheAllowedOnes(t *testing.T) {
	err := Config{ReplenishMax: -2, MaxTotal: -9, Backups: -1, LatencyMultiplier: math.NaN(), RefreshJitter: -1, ReplenishMin: -1, MaxBindings: -1}.Validate()
	if err == nil {
		t.Fatal("the zero value passes")
	}
	lines := strings.Split(err.Error(), "\n")
	if !sort.StringsAreSorted(lines) {
		t.Error("not sorted")
	}
	cfg := reflect.TypeFor[Config]()
	for i := range cfg.NumField() {
		name := cfg.Field(i).Name
		told := slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "pool: "+name+" is ") && strings.Contains(l, ", allowed is ")
		})
		if anyValue := slices.Contains([]string{"Datacenter", "Region", "Rand"}, name); told == anyValue {
			t.Errorf("%s: told is %v", name, told)
		}
	}
	if _, err := newTable(Config{}); err == nil {
		t.Error("newTable takes the zero value")
	}
	for _, alpha := range []float64{0, -1, 1.1, math.NaN()} {
		bad := config()
		bad.Alpha = alpha
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "Alpha") {
			t.Errorf("Alpha %v: %v", alpha, err)
		}
	}
	one := config()
	one.Alpha = 1
	if err := one.Validate(); err != nil {
		t.Error(err)
	}
	bad := config()
	bad.ReplenishMax = bad.ReplenishMin - 1
	bad.MaxTotal = bad.Primaries + bad.Backups
	for _, part := range []string{"ReplenishMax is 99.999999ms, allowed is ReplenishMin (100ms) or more", "MaxTotal is 5, allowed is more than Primaries + Backups (5)"} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to say %s", err, part)
		}
	}
}

// Every setting is turned, and what it is for is seen to change. A setting without
// a line here fails the test.
func TestEverySettingChangesBehaviour(t *testing.T) {
	// failures is how many failures in a row a primary gets before it goes, with this
	// many answers of all primaries before them.
	failures := func(answers int) func(Config) any {
		return func(cfg Config) any {
			if answers > 0 {
				cfg.ConsecutiveFailures = 1000 // only their share counts
			}
			r := newRig(t, cfg).update(relays(9))
			r.traffic(answers, nil)
			id := r.status().Primaries[0]
			for n := 1; n < 1000; n++ {
				r.to(id, selection.Failure, 0)
				if r.peer(id).Role == NoRole {
					return n
				}
			}
			return "never"
		}
	}
	// slowest is the latency at which a primary goes, in steps of 5 ms.
	slowest := func(cfg Config) any {
		for slow := 5 * time.Millisecond; ; slow += 5 * time.Millisecond {
			r := newRig(t, cfg).update(relays(9))
			id := r.status().Primaries[0]
			r.traffic(60, func(to string) (selection.Outcome, time.Duration) {
				if to == id {
					return selection.Success, slow
				}
				return selection.Success, time.Millisecond
			})
			if r.peer(id).Role == NoRole {
				return slow
			}
		}
	}
	places := func(cfg Config) any {
		s := newRig(t, cfg).update(fleet(3, 3, 14)).status()
		return fmt.Sprint(len(s.Primaries), len(s.Backups), len(s.Candidates), s.Reach)
	}
	nearby := func(cfg Config) any {
		cfg.Region = "eu"
		return places(cfg)
	}
	out := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(2))
		for k := 0; ; k++ {
			for range 4 {
				r.to("r1", selection.Failure, 0)
			}
			if out := r.peer("r1").OutUntil.Sub(r.now); k == 7 {
				return out > 30*time.Second
			} else {
				r.wait(out + time.Second)
			}
		}
	}
	// ranked counts rankings in an hour in which nothing happens.
	ranked := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(1))
		n := 0
		for end, last := r.now.Add(40*time.Minute), r.rankAt; r.now.Before(end); r.step() {
			if r.rankAt != last {
				n, last = n+1, r.rankAt
			}
			r.now = r.next
		}
		return n
	}
	replenished := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(9)).wait(time.Minute)
		r.Lost(r.linkOf(r.status().Backups[0]), errRefused, r.now)
		r.step()
		lost := r.now
		for len(r.status().Backups) < 2 {
			r.now = r.next
			r.step()
		}
		return r.now.Sub(lost)
	}
	carried := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(9))
		tickets, _ := r.take(100_000)
		return len(tickets)
	}
	aged := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(1))
		return r.wait(59*time.Minute + 59*time.Second).linkOf("r1")
	}
	extra := func(cfg Config) any {
		cfg.Streams = 1
		r := newRig(t, cfg).update(relays(1))
		tickets, _ := r.take(2)
		r.Release(tickets[0], r.now)
		r.Release(tickets[1], r.now)
		return r.wait(4 * time.Minute).status().Connections.Primary
	}
	bound := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(9))
		for i := range 20 {
			r.request(Request{Key: fmt.Sprint(i)})
		}
		r.wait(4 * time.Minute)
		r.request(Request{Key: "19"})
		return r.status().Bindings
	}
	average := func(cfg Config) any {
		r := newRig(t, cfg).update(relays(1))
		r.to("r1", selection.Success, 100*time.Millisecond)
		r.to("r1", selection.Success, 200*time.Millisecond)
		return r.peer("r1").Latency
	}
	order := func(cfg Config) any { return newRig(t, cfg).update(relays(20)).status().Candidates }

	turns := map[string]struct {
		see  func(Config) any
		turn func(*Config)
		want [2]any // before, after; nil where only the difference counts
	}{
		"Selector":            {order, func(c *Config) { c.Selector = "other" }, [2]any{}},
		"Datacenter":          {places, func(c *Config) { c.Datacenter = "dc1" }, [2]any{"3 2 8 global", "3 0 3 same_dc"}},
		"Region":              {places, func(c *Config) { c.Region = "eu" }, [2]any{"3 2 8 global", "3 2 6 same_region"}},
		"MinPeersPerTier":     {nearby, func(c *Config) { c.MinPeersPerTier = 7 }, [2]any{"3 2 6 same_region", "3 2 8 global"}},
		"Candidates":          {places, func(c *Config) { c.Candidates = 4 }, [2]any{"3 2 8 global", "3 1 4 global"}},
		"Primaries":           {places, func(c *Config) { c.Primaries = 1 }, [2]any{"3 2 8 global", "1 2 8 global"}},
		"Backups":             {places, func(c *Config) { c.Backups = 0 }, [2]any{"3 2 8 global", "3 0 8 global"}},
		"Alpha":               {average, func(c *Config) { c.Alpha = 1 }, [2]any{120 * time.Millisecond, 200 * time.Millisecond}},
		"ConsecutiveFailures": {failures(0), func(c *Config) { c.ConsecutiveFailures = 1 }, [2]any{4, 2}},
		"ErrorRateThreshold":  {failures(3000), func(c *Config) { c.ErrorRateThreshold = 0.2 }, [2]any{}},
		"LatencyMultiplier":   {slowest, func(c *Config) { c.LatencyMultiplier = 6 }, [2]any{35 * time.Millisecond, 65 * time.Millisecond}},
		"BaselineLatency":     {slowest, func(c *Config) { c.BaselineLatency = 20 * time.Millisecond }, [2]any{35 * time.Millisecond, 65 * time.Millisecond}},
		"MaxEviction":         {out, func(c *Config) { c.MaxEviction = 20 * time.Minute }, [2]any{false, true}},
		"MaxAge":              {aged, func(c *Config) { c.MaxAge = 2 * time.Hour }, [2]any{linkID(2), linkID(1)}},
		"RefreshInterval":     {ranked, func(c *Config) { c.RefreshInterval = 10 * time.Second }, [2]any{}},
		"RefreshJitter":       {ranked, func(c *Config) { c.RefreshJitter = 0 }, [2]any{}},
		"ReplenishMin":        {replenished, func(c *Config) { c.ReplenishMin = 500 * time.Millisecond }, [2]any{nil, 500 * time.Millisecond}},
		"ReplenishMax":        {replenished, func(c *Config) { c.ReplenishMax = 100 * time.Millisecond }, [2]any{nil, 100 * time.Millisecond}},
		"Streams":             {carried, func(c *Config) { c.Streams = 1 }, [2]any{1500, 15}},
		"MaxPerPeer":          {carried, func(c *Config) { c.MaxPerPeer = 2 }, [2]any{1500, 600}},
		"MaxTotal":            {carried, func(c *Config) { c.MaxTotal = 7 }, [2]any{1500, 500}},
		"IdleTimeout":         {extra, func(c *Config) { c.IdleTimeout = 3 * time.Minute }, [2]any{2, 1}},
		"MaxBindings":         {bound, func(c *Config) { c.MaxBindings = 7 }, [2]any{20, 7}},
		"BindingTTL":          {bound, func(c *Config) { c.BindingTTL = time.Minute }, [2]any{20, 1}},
		"BindingIdle":         {bound, func(c *Config) { c.BindingIdle = time.Minute }, [2]any{20, 1}},
	}
	for name, c := range turns {
		plain, turned := config(), config()
		c.turn(&turned)
		before, after := c.see(plain), c.see(turned)
		if reflect.DeepEqual(before, after) {
			t.Errorf("%s changes nothing: %v", name, before)
		}
		for i, got := range [2]any{before, after} {
			if c.want[i] != nil && got != c.want[i] {
				t.Errorf("%s: %v, want %v", name, got, c.want[i])
			}
		}
	}
	cfg := reflect.TypeFor[Config]()
	for i := range cfg.NumField() {
		// ConnectTimeout is for the running half, Rand is what all of this runs on.
		if name := cfg.Field(i).Name; turns[name].see == nil && name != "ConnectTimeout" && name != "Rand" {
			t.Errorf("%s is not shown to change anything", name)
		}
	}
}

func TestTheIntervalBetweenRankingsIsSixtyToSixtyFiveSeconds(t *testing.T) {
	r := newRig(t, config()).update(relays(3))
	low, high := time.Hour, time.Duration(0)
	for last := r.rankAt; last.Before(start.Add(3 * time.Hour)); last = r.rankAt {
		r.wait(last.Sub(r.now))
		low, high = min(low, r.rankAt.Sub(last)), max(high, r.rankAt.Sub(last))
	}
	if low < time.Minute || high > 65*time.Second || high-low < 4*time.Second {
		t.Errorf("between %v and %v", low, high)
	}
}
