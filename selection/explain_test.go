package selection

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ticketOf is for excluding: no request begins.
func (r *rig) ticketOf(id string) Pick[any] {
	e := r.pickFromTable(id)
	return Pick[any]{ticket{state: e.state, entry: e}}
}

func TestAnExplanationChangesNothing(t *testing.T) {
	cfg := DefaultConfig()
	draws := 0
	source := rand.NewPCG(1, 1)
	r := newRig(t, cfg)
	r.rand = func() uint64 { draws++; return source.Uint64() }
	r.update(rangeOf(6))
	r.settle()
	for i := range 6 {
		r.requests(3, fmt.Sprintf("w%d", i), time.Duration(10+i)*ms, Success.with(i))
	}
	r.pick(nil)
	r.requests(4, "w0", 0, Failure)
	r.wait(30 * time.Second)
	r.Refresh(r.now)
	before, winner, drew := r.Stats(r.now), r.winner.load(), draws
	var tried Exclusion
	r.ticketOf("w3").AddTo(&tried)
	probes := 0
	for range 500 {
		for _, excluded := range []*Exclusion{nil, &tried} {
			d, err := r.Explain(r.now, excluded, nil)
			if err != nil || d.Winner.ID == "" || d.Reason == "" {
				t.Fatalf("%+v, %v", d, err)
			}
			if d.Winner.State == "half_open" {
				probes++
			}
		}
	}
	if probes == 0 {
		t.Error("the half-open endpoint was never chosen, so that nothing was shown about it")
	}
	for i, s := range r.Stats(r.now) {
		if s != before[i] {
			t.Errorf("was %+v, is %+v", before[i], s)
		}
	}
	if r.winner.load() != winner || draws != drew || r.state("w0").probing.Load() != 0 {
		t.Error("the running winner, the random source or the place of a half-open endpoint was touched")
	}
}

// Whatever the state of the range, the parts of every score make the score, the
// winner is the lowest, and the ticket is the winner's.
func TestAnExplainedPickIsThePick(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, DefaultConfig())
		n := rapid.IntRange(1, 8).Draw(rt, "n")
		endpoints := rangeOf(n)
		for i := range endpoints {
			endpoints[i].Weight = float64(rapid.IntRange(1, 3).Draw(rt, "weight"))
			endpoints[i].Tier = uint8(rapid.IntRange(0, 1).Draw(rt, "tier"))
		}
		r.update(endpoints)
		for range rapid.IntRange(0, 30).Draw(rt, "history") {
			id := fmt.Sprintf("w%d", rapid.IntRange(0, n-1).Draw(rt, "endpoint"))
			r.request(id, time.Duration(rapid.IntRange(1, 100).Draw(rt, "ms"))*ms, rapid.SampledFrom([]ended{Success, Success.with(3), Failure, Shed}).Draw(rt, "outcome"))
		}
		r.Refresh(r.now)
		var d Decision
		for range 10 {
			before := map[string]EndpointStats{}
			for _, s := range r.Stats(r.now) {
				before[s.ID] = s
			}
			w := float64(r.winner.load())
			p, err := r.PickExplained(r.now, nil, &d)
			if err != nil {
				rt.Fatal(err)
			}
			if p.ID() != d.Winner.ID || d.Reason == "" || d.RunningWinner != w || d.Range != n {
				rt.Fatalf("picked %s, explained %+v", p.ID(), d)
			}
			if r.stats(p.ID()).Picks != before[p.ID()].Picks+1 {
				rt.Fatal("the pick was not counted")
			}
			if len(d.Pairs) > r.redraws+1 {
				rt.Fatalf("%d pairs with %d redraws", len(d.Pairs), r.redraws)
			}
			lowest := math.Inf(1)
			for i, pair := range d.Pairs {
				for j, c := range []Candidate{pair.First, pair.Second} {
					if c.ID == "" {
						continue
					}
					score := float64(c.Latency) * (c.Queue + c.Headroom + 1) / (c.Success * c.Success * c.Ramp)
					if math.Abs(score-c.Score) > c.Score*1e-5+1 || math.Abs(c.Score-before[c.ID].Score) > c.Score*1e-6 {
						rt.Fatalf("%s scores %v, its parts make %v, its statistics say %v", c.ID, c.Score, score, before[c.ID].Score)
					}
					if j == 0 {
						lowest = min(lowest, c.Score/pair.Handicap)
					} else {
						lowest = min(lowest, c.Score)
					}
				}
				if again := i < len(d.Pairs)-1; again != pair.Redrawn || again && lowest <= w {
					rt.Fatalf("pair %d of %d, lowest %v, winner %v: redrawn is %v", i, len(d.Pairs), lowest, w, pair.Redrawn)
				}
			}
			if len(d.Pairs) > 0 {
				if won := d.Winner.Score; won > lowest*d.Pairs[0].Handicap*(1+1e-6) {
					rt.Fatalf("%s won with %v, the lowest is %v", d.Winner.ID, won, lowest)
				}
			}
			r.Done(p, r.now+Instant(10*ms), Success)
		}
	})
}

func TestTheReasonExplainsThePick(t *testing.T) {
	reason := func(r *rig, excluded *Exclusion) string {
		t.Helper()
		d, err := r.Explain(r.now, excluded, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.Reason
	}
	check := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want something about %q", what, got, want)
		}
	}
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(1))
	check("alone", reason(r, nil), "only endpoint")
	r.update(rangeOf(2))
	r.settle()
	check("new", reason(r, nil), "drawn first")
	r.request("w0", ms, Success)
	check("one is better", reason(r, nil), `lower than "w1"`)
	r.update(weighted(9, 1))
	r.settle()
	seen := map[string]bool{}
	for range 100 {
		seen[reason(r, nil)] = true
	}
	if !seen[`it has at least half of all weight, and "w1" is not 3 times better`] {
		t.Errorf("one is dominant: %v", seen)
	}
	r.winner.bits.Store(math.Float32bits(1)) // no endpoint has so good a score
	if d, err := r.Explain(r.now, nil, nil); err != nil || len(d.Pairs) != 1 {
		t.Errorf("drawn again next to a dominant endpoint: %+v, %v", d.Pairs, err)
	}
	r.request("w1", 10*time.Microsecond, Success)
	r.median(time.Second)
	r.wait(time.Minute)
	r.state("w0").latency.Store(pack(float32(time.Second), r.now.tick()))
	seen = map[string]bool{}
	for range 100 {
		seen[reason(r, nil)] = true
	}
	if !seen[`it is more than 3 times better than "w0", which has at least half of all weight`] {
		t.Errorf("the dominant one is bad: %v", seen)
	}
	r = fleet(t, 10, DefaultConfig())
	r.winner.bits.Store(math.Float32bits(1)) // no endpoint has so good a score
	check("redrawn", reason(r, nil), "in 3 pairs")
	var tried Exclusion
	for i := range exclusionSize {
		r.ticketOf(fmt.Sprintf("w%d", i)).AddTo(&tried)
	}
	r.update(rangeOf(8)[:8])
	if d, err := r.Explain(r.now, &tried, nil); !errors.Is(err, ErrNoEndpoint) || d.Reason != err.Error() {
		t.Errorf("%+v, %v", d, err)
	}
	r = fleet(t, 3, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	tried = Exclusion{}
	r.ticketOf("w1").AddTo(&tried)
	r.ticketOf("w2").AddTo(&tried)
	check("evicted", reason(r, &tried), "only evicted")
}

func TestPickPaysNothingForExplanations(t *testing.T) {
	r := fleet(t, 50, DefaultConfig())
	r.rand = nil
	if n := testing.AllocsPerRun(1000, func() {
		p, err := r.Pick(r.now, nil)
		if err != nil {
			t.Error(err)
		}
		r.Done(p, r.now, Cancelled)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnExplanationChangesNoScoreOfTheWinners(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(6))
	r.drive(load{400, time.Second, func(string, Instant) (time.Duration, ended) { return ms, Success }})
	r.requests(20, "w0", 100*ms, Success)
	before := r.winner.load()
	for range 200 {
		if _, err := r.Explain(r.now, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if after := r.winner.load(); after != before {
		t.Errorf("the score of the winners was %v and is %v", before, after)
	}
}
