package failover

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The relays of one datacenter know the workers of three datacenters: their own, one in the
// same region, and one far away.
var places = []affinity.Place{
	{Datacenter: "fra", Region: "eu"}, {Datacenter: "par", Region: "eu"}, {Datacenter: "nyc", Region: "us"},
}

const (
	tiers      = 3
	relays     = 4
	perPlace   = 12 // workers
	begins     = 10 // s, until the fault begins
	happens    = 20 // s, duration of the fault
	membership = 5  // s, until membership detects lost members
)

// fault is a fault of workers of the nearest datacenters.
type fault struct {
	name string
	hit  []int // number of affected workers, by place
	gone bool  // the workers crash: membership removes them, and later adds them again
	near float64
	// load replaces the setting load; 0 means the setting.
	load float64
}

// faults returns all faults, each with the share of the traffic that should stay near
// during the fault.
func faults(overprovisioning float64) []fault {
	sick := func(n int) float64 { return min(1, overprovisioning*float64(perPlace-n)/perPlace) }
	return []fault{
		{name: "a quarter is sick", hit: []int{perPlace / 4, 0, 0}, near: sick(perPlace / 4)},
		{name: "half is sick", hit: []int{perPlace / 2, 0, 0}, near: sick(perPlace / 2)},
		// Every near worker fails. Only the workers farther away show that the fault does not
		// affect the whole fleet.
		{name: "all are sick", hit: []int{perPlace, 0, 0}},
		// The healthy half has a load of 98 % and is slow compared with idle workers far away.
		// Evictions for slowness would leave even fewer workers.
		{name: "half is sick, 70 % load", hit: []int{perPlace / 2, 0, 0}, near: sick(perPlace / 2), load: 0.7},
		{name: "datacenter lost", hit: []int{perPlace, 0, 0}, gone: true},
		{name: "region lost", hit: []int{perPlace, perPlace, 0}, gone: true},
	}
}

// second counts the requests of one second.
type second struct {
	sent   [tiers]int
	failed int // of the requests that began in this second
}

func (s *second) total() (n int) {
	for _, k := range s.sent {
		n += k
	}
	return n
}

// watched is a client that records the tiers of its requests.
type watched struct {
	queueing.Client
	seconds []second
}

func (w *watched) at(i selection.Instant) *second {
	return &w.seconds[min(int(i/selection.Instant(time.Second)), len(w.seconds)-1)]
}

func (w *watched) Pick(now selection.Instant) queueing.Ticket {
	t := w.Client.Pick(now)
	w.at(now).sent[int(t.Worker)/perPlace]++
	return t
}

func (w *watched) Done(t queueing.Ticket, a queueing.Answer) {
	if a.Outcome == queueing.Failure {
		w.at(a.Start).failed++
	}
	w.Client.Done(t, a)
}

// rangeWithout returns the range of every relay without the lost workers of each place.
func rangeWithout(r *scenario.Run, gone []int) (out []queueing.Endpoint) {
	for p, place := range places {
		for i := range perPlace {
			if i >= gone[p] {
				e := queueing.Endpoint{Worker: p*perPlace + i, Weight: 1}
				if r.Bool("tiers") {
					e.Tier = uint8(places[0].Tier(place))
				}
				out = append(out, e)
			}
		}
	}
	return out
}

// runFault runs one fault and returns the counts of every second.
func runFault(r *scenario.Run, m fault) ([]second, error) {
	cfg := selection.DefaultConfig()
	cfg.Overprovisioning, cfg.MaxEviction = r.Float("overprovisioning"), r.Duration("max-eviction")
	cfg.ConsecutiveFailures, cfg.ErrorRateThreshold = r.Int("consecutive-failures"), r.Float("error-rate-threshold")
	end := begins + happens + int(r.Duration("after").Seconds())
	seconds := make([]second, end)
	turn := func(f *queueing.Fleet, t queueing.Turn) {
		for p, n := range m.hit {
			for i := range n {
				f.Turn(p*perPlace+i, t)
			}
		}
	}
	at := func(seconds int) selection.Instant {
		return selection.Instant(seconds) * selection.Instant(time.Second)
	}
	move := func(gone []int) func(*queueing.Fleet) {
		return func(f *queueing.Fleet) {
			for c := range relays {
				f.Range(c, rangeWithout(r, gone))
			}
		}
	}
	script := []queueing.Step{{At: at(begins), Do: func(f *queueing.Fleet) { turn(f, queueing.Turn{Slow: 1, Failing: true}) }}}
	if m.gone {
		script = append(script, queueing.Step{At: at(begins + membership), Do: move(m.hit)})
	}
	script = append(script, queueing.Step{At: at(begins + happens), Do: func(f *queueing.Fleet) { turn(f, queueing.Turn{Slow: 1}) }})
	if m.gone {
		script = append(script, queueing.Step{At: at(begins + happens + 1), Do: move([]int{0, 0, 0})})
	}
	ranges := make([][]queueing.Endpoint, relays)
	for i := range ranges {
		ranges[i] = rangeWithout(r, []int{0, 0, 0})
	}
	ringway := policy.Ringway("ringway", cfg)
	_, err := queueing.Run(queueing.Config{
		Topology: queueing.Topology{Clients: relays, Workers: len(places) * perPlace, Range: len(places) * perPlace},
		Ranges:   ranges, Script: script, Seed: r.Seed(),
		Load:     cmp.Or(m.load, r.Float("load")) / float64(len(places)), // of the nearest datacenter
		Scenario: queueing.Scenario{Name: m.name, End: at(end)},
		Policy: queueing.Policy{Name: ringway.Name, New: func(env queueing.Env) queueing.Client {
			return &watched{ringway.New(env), seconds}
		}},
	})
	return seconds, err
}

// course describes the traffic before, during and after a fault.
type course struct {
	near   [3]float64 // share of near traffic: before, at the end of the fault, at the end of the run
	failed float64    // share of failed requests in the last 10 s of the fault
	until  float64    // s from the beginning of the fault until less than 1 % of requests fail
	back   float64    // s from the end of the fault until 95 % of the traffic is near again
}

func courseOf(seconds []second) course {
	share := func(from, to int) (near, failed float64) {
		total := 0
		for _, s := range seconds[from:to] {
			total += s.total()
			near += float64(s.sent[0])
			failed += float64(s.failed)
		}
		return near / float64(total), failed / float64(total)
	}
	var c course
	c.near[0], _ = share(begins-5, begins)
	c.near[1], c.failed = share(begins+happens-10, begins+happens)
	c.near[2], _ = share(len(seconds)-5, len(seconds))
	for i := begins + happens - 1; i >= begins; i-- {
		if float64(seconds[i].failed) >= 0.01*float64(seconds[i].total()) {
			c.until = float64(i + 1 - begins)
			break
		}
	}
	for i := len(seconds) - 1; i >= begins+happens; i-- {
		if float64(seconds[i].sent[0]) < 0.95*float64(seconds[i].total()) {
			c.back = float64(i + 1 - begins - happens)
			break
		}
	}
	return c
}

func traffic(r *scenario.Run) error {
	all := faults(r.Float("overprovisioning"))
	seconds := make([][]second, len(all))
	if err := r.Parallel(len(all), func(i int) (err error) {
		seconds[i], err = runFault(r, all[i])
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name:  "traffic",
		Title: fmt.Sprintf("traffic of the relays of a datacenter, whose %d workers it loads to %.0f %%, with as many in the region and far away", perPlace, 100*r.Float("load")),
		Note:  "Sick workers fail every request and stay members. Lost ones are taken out by membership after 5 s.",
		Columns: []scenario.Column{
			{Name: "workers near", Key: true}, {Name: "stays near", Unit: "%", Digits: 1}, {Name: "expected", Unit: "%", Digits: 1},
			{Name: "fails, after 10 s", Unit: "%", Digits: 2}, {Name: "until less than 1 % fails", Unit: "s"}, {Name: "until 95 % is near again", Unit: "s"},
		},
	})
	p := r.Plot(scenario.Plot{
		Name: "near", Title: "Traffic that stays in the datacenter; something happens from 10 to 30 s",
		X: scenario.Axis{Label: "time", Unit: "s"}, Y: scenario.Axis{Label: "traffic in the datacenter", Unit: "%"},
	})
	f := r.Plot(scenario.Plot{
		Name: "failed", Title: "Attempts that fail; something happens from 10 to 30 s",
		X: scenario.Axis{Label: "time", Unit: "s"}, Y: scenario.Axis{Label: "failed", Unit: "%"},
	})
	for _, p := range []*scenario.Plot{p, f} {
		p.Event(begins, "the fault begins")
		p.Event(begins+membership, "membership knows")
		p.Event(begins+happens, "it ends")
	}
	slowest := 0.0
	for i, m := range all {
		c := courseOf(seconds[i])
		t.Add(m.name, 100*c.near[1], 100*m.near, 100*c.failed, int(c.until), int(c.back))
		r.Check(staysNear, math.Abs(c.near[1]-m.near), m.name)
		r.Check(failing, c.failed, m.name)
		r.Check(recovers, c.back, m.name)
		slowest = max(slowest, c.back)
		line, errors := p.Line(m.name), f.Line(m.name)
		for s, seen := range seconds[i] {
			line.At(float64(s), 100*float64(seen.sent[0])/float64(seen.total()))
			errors.At(float64(s), 100*float64(seen.failed)/float64(seen.total()))
		}
	}
	p.Conclusion = fmt.Sprintf("Traffic leaves a datacenter as far as its healthy workers, times %.1f, cannot take it, and is back %.0f s after they are well.", r.Float("overprovisioning"), slowest)
	f.Conclusion = "Failures end when the failing workers are evicted, all near ones if necessary, and at the latest when membership removes the lost ones."
	return nil
}
