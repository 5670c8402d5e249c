package ratelimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestABucketIsATokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := Rate{Requests: rapid.IntRange(1, 2000).Draw(t, "requests"), Per: time.Second, Burst: rapid.IntRange(0, 50).Draw(t, "burst")}
		part := rate.For(rapid.Float64Range(0.01, 1).Draw(t, "share"))
		var b Bucket
		now, level, last := time.Duration(0), part.depth, time.Duration(0) // a level in the time in which it fills
		for range rapid.IntRange(1, 200).Draw(t, "arrivals") {
			now += time.Duration(rapid.Int64Range(0, int64(2*part.interval)).Draw(t, "pause"))
			level = min(part.depth, level+now-last)
			last = now
			wait := b.Take(now, part)
			if level < part.interval {
				if want := part.interval - level; wait != want {
					t.Fatalf("at %v the wait is %v, want %v", now, wait, want)
				}
				continue
			}
			if wait != 0 {
				t.Fatalf("at %v a request waits %v although the bucket has %v of %v", now, wait, level, part.interval)
			}
			level -= part.interval
		}
	})
}

func TestAHigherRateCountsFromTheMomentOfItsChange(t *testing.T) {
	part := func(text string, burst int) Part {
		rate, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		rate.Burst = burst
		return rate.For(1)
	}
	low, high := part("100/h", 100), part("1000/s", 0)
	var b Bucket
	for range 100 {
		if b.Take(0, low) != 0 {
			t.Fatal("the burst does not pass")
		}
	}
	if wait := b.Take(0, high); wait != time.Millisecond {
		t.Errorf("after the change the next request waits %v", wait)
	}
	if wait := b.Take(time.Millisecond, high); wait != 0 {
		t.Errorf("a millisecond later it waits %v", wait)
	}
}

func TestARateThatIsRaisedAndLoweredAgainLetsNoBurstPassAnew(t *testing.T) {
	low, high := Rate{Requests: 100, Per: time.Hour, Burst: 100}.For(1), Rate{Requests: 1000, Per: time.Second}.For(1)
	var b Bucket
	for range 100 {
		b.Take(0, low)
	}
	now := time.Duration(0)
	for range 10 { // both parts are in use while the change reaches the requests
		now += time.Millisecond
		if wait := b.Take(now, high); wait <= 0 || wait > time.Millisecond {
			t.Fatalf("with the higher rate the next request waits %v", wait)
		}
		if wait := b.Take(now, low); wait < 35*time.Second || wait > 36*time.Second {
			t.Fatalf("with the lower rate again it waits %v", wait)
		}
	}
	b.Take(now, high)
	now += 250 * time.Millisecond // half of what fills the bucket
	passed := 0
	for b.Take(now, high) == 0 {
		passed++
	}
	if passed < 249 || passed > 250 {
		t.Errorf("%d pass after a quarter of a second, want 250", passed)
	}
}

func TestAHalfFullBucketIsHalfFullForAnotherRate(t *testing.T) {
	low, high := Rate{Requests: 100, Per: time.Hour, Burst: 100}.For(1), Rate{Requests: 1000, Per: time.Second}.For(1)
	var b Bucket
	for range 250 {
		b.Take(0, high)
	}
	passed := 0
	for b.Take(0, low) == 0 {
		passed++
	}
	if passed != 50 {
		t.Errorf("%d of a burst of 100 pass, want 50", passed)
	}
}

func TestABurstPassesOnceAndThenTheRate(t *testing.T) {
	for _, c := range []struct {
		rate   string
		burst  int
		share  float64
		first  int // at one moment
		inTen  int // in the ten seconds from then on
		second time.Duration
	}{
		{"100/s", 0, 1, 50, 1050, 10 * time.Millisecond},
		{"100/s", 200, 1, 200, 1200, 10 * time.Millisecond},
		{"100/s", 200, 0.25, 50, 300, 40 * time.Millisecond},
		{"100/s", 1, 1, 1, 1001, 10 * time.Millisecond},
		{"10/m", 1, 1, 1, 2, 6 * time.Second}, // at least one
		{"1/s", 0, 1, 5, 15, time.Second},     // at least five without a burst
		{"2/m", 0, 0.5, 1, 1, time.Minute},    // but not more than all relays in a minute
		{"4/s", 0, 0.05, 1, 3, 5 * time.Second},
		{"10/m", 10, 0.5, 5, 5, 12 * time.Second},
	} {
		rate, err := Parse(c.rate)
		if err != nil {
			t.Fatal(err)
		}
		rate.Burst = c.burst
		part := rate.For(c.share)
		var b Bucket
		passed := 0
		for b.Take(0, part) == 0 {
			passed++
		}
		if passed != c.first || b.Take(0, part) != c.second {
			t.Errorf("%s, burst %d, share %v: %d pass together, the next after %v, want %d and %v", c.rate, c.burst, c.share, passed, b.Take(0, part), c.first, c.second)
		}
		for now := time.Duration(0); now <= 10*time.Second; now += time.Millisecond {
			if b.Take(now, part) == 0 {
				passed++
			}
		}
		if passed != c.inTen {
			t.Errorf("%s, burst %d, share %v: %d pass in ten seconds, want %d", c.rate, c.burst, c.share, passed, c.inTen)
		}
	}
}

func TestWhatIsGivenBackCanBeTakenAgain(t *testing.T) {
	part := Rate{Requests: 1, Per: time.Second}.For(1)
	var b Bucket
	for range 3 {
		if wait := b.Take(0, part); wait != 0 {
			t.Fatal(wait)
		}
		b.Return(part)
	}
}

func TestRequestsAtOneMomentPassAsOftenAsTheBurstSays(t *testing.T) {
	part := Rate{Requests: 1, Per: time.Hour, Burst: 100}.For(1)
	var b Bucket
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if b.Take(0, part) == 0 {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 100 {
		t.Errorf("%d have passed, want 100", passed.Load())
	}
}

func TestATextThatIsNoRateIsRefused(t *testing.T) {
	for _, text := range []string{"", "100", "/s", "100/", "100/d", "100/S", "-1/s", "+1/s", "1.5/s", "1e3/s", " 1/s", "1 /s", "0/s", "1000000001/s", "99999999999999999999/s", "1/s/s"} {
		if rate, err := Parse(text); err == nil {
			t.Errorf("%q is %+v", text, rate)
		}
	}
	for _, text := range []string{"1/s", "30/m", "1000/h", "1000000000/s"} {
		if rate, err := Parse(text); err != nil || rate.String() != text {
			t.Errorf("%q is %v: %v", text, rate, err)
		}
	}
}

func TestTheBucketsOfCallersAreBounded(t *testing.T) {
	c, now := NewCallers(), time.Hour
	part := Rate{Requests: 1, Per: time.Second}.For(1)
	take := func(i int) bool {
		b := c.Bucket(Caller{fmt.Sprint("caller ", i), "s"}, now)
		if b != nil {
			b.Take(now, part)
		}
		return b != nil
	}
	full := 0
	for i := range 2 * MaxCallers {
		if !take(i) {
			full++
		}
	}
	if n := c.Len(); n != MaxCallers || full != MaxCallers {
		t.Errorf("there are %d buckets, and %d callers have none; want %d of both", n, full, MaxCallers)
	}
	if !take(0) {
		t.Error("a caller with a bucket has lost it")
	}
	now += 2 * time.Second // all buckets are full again
	if !take(2*MaxCallers + 1) {
		t.Error("a new caller gets no bucket although all others are full")
	}
	if n := c.Len(); n > MaxCallers-maxInShard+1 {
		t.Errorf("%d buckets are kept although all but one in its shard are full", n)
	}
}

func TestARequestOfAKnownCallerAllocatesNothing(t *testing.T) {
	c := NewCallers()
	part := Rate{Requests: 1_000_000, Per: time.Second}.For(0.1)
	of, now := Caller{"alice", "billing"}, time.Duration(0)
	if n := testing.AllocsPerRun(100, func() {
		now += time.Millisecond
		c.Bucket(of, now).Take(now, part)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBucket(b *testing.B) {
	rate := Rate{Requests: 1_000_000_000, Per: time.Second}
	var bucket Bucket
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += time.Microsecond
		bucket.Take(now, rate.For(0.1))
	}
}

func BenchmarkBucketOfACaller(b *testing.B) {
	rate, c := Rate{Requests: 1_000_000_000, Per: time.Second}, NewCallers()
	for i := range MaxCallers / 2 {
		c.Bucket(Caller{fmt.Sprint(i), "billing"}, 0).Take(0, rate.For(0.1))
	}
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += time.Microsecond
		c.Bucket(Caller{"17", "billing"}, now).Take(now, rate.For(0.1))
	}
}
