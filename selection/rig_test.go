package selection

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// rig drives a balancer with a clock and a random source of its own.
type rig struct {
	*Balancer[any]
	t   testing.TB
	now Instant
	rng *rand.Rand
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	b, err := NewBalancer[any](cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Balancer: b, t: t, now: Instant(time.Hour), rng: rand.New(rand.NewPCG(1, 2))}
	b.rand = r.rng.Uint64
	return r
}

// rangeOf returns n endpoints of weight 1: w0, w1, …
func rangeOf(n int) []Endpoint[any] {
	endpoints := make([]Endpoint[any], n)
	for i := range endpoints {
		endpoints[i] = Endpoint[any]{ID: fmt.Sprintf("w%d", i), Weight: 1, Value: i}
	}
	return endpoints
}

func (r *rig) update(endpoints []Endpoint[any]) {
	r.t.Helper()
	if err := r.Update(endpoints, r.now); err != nil {
		r.t.Fatal(err)
	}
}

// settle passes the slow start of everything that joined.
func (r *rig) settle() { r.wait(time.Duration(r.cfg.SlowStart)) }

func (r *rig) wait(d time.Duration) { r.now += Instant(d) }

func (r *rig) pick(excluded *Exclusion) Pick[any] {
	r.t.Helper()
	p, err := r.Pick(r.now, excluded)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) room(id string) room {
	r.t.Helper()
	one := r.pickFromTable(id).candidate()
	return one.room(r.now.tick())
}

// pickFrom makes a ticket of the named endpoint without drawing.
func (r *rig) pickFrom(id string) Pick[any] {
	r.t.Helper()
	p, err := r.Take(id, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// request sends one request to the named endpoint.
func (r *rig) request(id string, took time.Duration, o ended) {
	r.t.Helper()
	p := r.pickFrom(id)
	r.wait(took)
	r.Done(p, r.now, o)
}

func (r *rig) requests(n int, id string, took time.Duration, o ended) {
	r.t.Helper()
	for range n {
		r.request(id, took, o)
	}
}

func (r *rig) stats(id string) EndpointStats {
	r.t.Helper()
	for _, s := range r.Stats(r.now) {
		if s.ID == id {
			return s
		}
	}
	r.t.Fatalf("no statistics of %q", id)
	return EndpointStats{}
}

func (r *rig) state(id string) *state {
	r.t.Helper()
	return r.pickFromTable(id).state
}

func (r *rig) pickFromTable(id string) *entry {
	r.t.Helper()
	entries := r.table.Load().entries
	for i := range entries {
		if entries[i].ID == id {
			return &entries[i]
		}
	}
	r.t.Fatalf("no endpoint %q", id)
	return nil
}

func (r *rig) score(id string) float64 { return r.stats(id).Score }

// idleShares picks n times, cancelling each immediately, and counts.
func (r *rig) idleShares(n int, excluded *Exclusion) map[string]float64 {
	r.t.Helper()
	shares := map[string]float64{}
	for range n {
		p := r.pick(excluded)
		shares[p.ID()] += 1 / float64(n)
		r.Done(p, r.now, Cancelled)
	}
	return shares
}

// load is open traffic for some time: Poisson arrivals at rate per second, each
// answered as the function decides.
type load struct {
	rate   float64
	during time.Duration
	answer func(id string, now Instant) (time.Duration, ended)
}

type traffic struct {
	shares    map[string]float64
	latencies []time.Duration // of successes
	failures  int
	total     int
}

// drive runs the traffic through the balancer, with a Refresh every 250 ms.
func (r *rig) drive(l load) traffic {
	r.t.Helper()
	got := traffic{shares: map[string]float64{}}
	var out departures
	end, refresh := r.now+Instant(l.during), r.now
	arrival := r.now
	for {
		for len(out) > 0 && (out[0].at <= arrival || arrival >= end) {
			d := heap.Pop(&out).(departure)
			r.now = d.at
			r.Done(d.pick, d.at, d.outcome)
			switch d.outcome.result().Outcome {
			case Success:
				got.latencies = append(got.latencies, time.Duration(d.at-d.pick.start))
			case Failure:
				got.failures++
			}
		}
		if arrival >= end {
			break
		}
		r.now = arrival
		if r.now >= refresh {
			r.Refresh(r.now)
			refresh = r.now + Instant(250*time.Millisecond)
		}
		p := r.pick(nil)
		took, o := l.answer(p.ID(), r.now)
		heap.Push(&out, departure{r.now + Instant(took), p, o})
		got.shares[p.ID()]++
		got.total++
		arrival += Instant(r.rng.ExpFloat64() / l.rate * 1e9)
	}
	r.now = max(r.now, end)
	for id := range got.shares {
		got.shares[id] /= float64(got.total)
	}
	return got
}

type departure struct {
	at      Instant
	pick    Pick[any]
	outcome ended
}

type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// near fails unless got is within tolerance, a fraction, of want.
func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if diff := got - want; diff > want*tolerance || diff < -want*tolerance {
		t.Errorf("%s is %.5g, want %.5g ± %.0f %%", what, got, want, 100*tolerance)
	}
}

// endpoint returns the endpoint as it was in the last Update before the pick.
func (t ticket) endpoint() Endpoint[any] { return t.entry.Endpoint }

// ended is an Outcome or a Result: most tests report no load.
type ended interface{ result() Result }

func (o Outcome) result() Result { return Result{Outcome: o} }

func (r Result) result() Result { return r }

// with is a result whose endpoint reported a load.
func (o Outcome) with(load int) Result { return Result{Outcome: o, Load: load, HasLoad: true} }

func (r *rig) Done(p Pick[any], now Instant, o ended) { r.Balancer.Done(p, now, o.result()) }

func (r *rig) Answered(p Pick[any], now Instant, o ended) Pick[any] {
	return r.Balancer.Answered(p, now, o.result())
}
