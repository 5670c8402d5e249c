package gossip

import (
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	joined    = "a join is seen by 95 % of the members"
	left      = "a leave is seen by 95 % of the members"
	crashed   = "a crash is seen by 95 % of the members"
	converged = "the last member has seen a join, a leave or a burst of changes"
	noDeath   = "members considered dead that have left or are alive ÷ events to announce"
	quiet     = "bytes sent by an idle member, at every size"
	quietAt   = "bytes sent by an idle member, extrapolated"
	timesFit  = "the law of the smaller fleets, off the times of the largest"
	bytesFit  = "the law of the smaller fleets, off the bytes of the largest"
)

// New returns the scenario.
func New() scenario.Scenario { return with(Measure) }

func with(measure func(Config) (Result, error)) scenario.Scenario {
	return scenario.Scenario{
		Name: "gossip",
		Asks: "How soon do all members know, and how many bytes does it cost each, when one joins, leaves or dies and when many change what they offer?",
		Settings: []scenario.Setting{
			{Name: "members", Help: "sizes of the fleets, from small to large; one member in twenty is a relay", Unit: "members", Default: []int{50, 200, 500}, Quick: []int{12, 24, 48}, Min: 10, Max: 2000},
			{Name: "events", Help: "how often each event happens in the largest fleet, joins twice as often; in smaller ones up to three times that", Unit: "events", Default: 2, Min: 1, Max: 100},
			{Name: "burst", Help: "share of the workers that change what they offer at one time", Unit: "1", Default: 0.1, Min: 0.0, Max: 1.0},
			{Name: "loss", Help: "share of the packets that vanish once the fleet is formed", Unit: "1", Default: 0.0, Min: 0.0, Max: 1.0},
			{Name: "exchange-interval", Help: "how often a member compares its records with another one", Default: 30 * time.Second, Min: 10 * time.Millisecond, Max: time.Hour},
			{Name: "encrypted", Help: "whether packets are encrypted", Default: false},
			{Name: "predict", Help: "size that is extrapolated to", Unit: "members", Default: 10000, Min: 10, Max: 1000000},
		},
		Promises: []scenario.Promise{
			{Name: joined, Relation: scenario.AtMost, Bound: 2, Unit: "s", Why: "membership promises a second, and the view comes after the record"},
			{Name: left, Relation: scenario.AtMost, Bound: 5, Unit: "s", Why: "a leaving member stays for as long; members that do not know of the leave by then send requests that are refused"},
			{Name: crashed, Relation: scenario.AtMost, Unit: "s", Why: "the suspicion of 4·log10 n s that memberlist waits, the failed probe of 1 s, 7 s until one of all members probes the dead (longer once in a thousand crashes), 3 s to announce it"},
			{Name: converged, Relation: scenario.AtMost, Bound: 10, Unit: "s", Why: "gossip reaches all; a record that waits for an exchange, of 30 s, was lost"},
			{Name: noDeath, Relation: scenario.AtMost, Bound: 0.05, Why: "in parts of members × leaves: an announcement misses a few members in ten thousand, and a crash is what they see; a member that is alive would be missed by all of them"},
			{Name: quiet, Relation: scenario.AtMost, Bound: 60_000, Unit: "bytes/min", Why: "a kilobyte a second is nothing to a host"},
			{Name: quietAt, Relation: scenario.AtMost, Bound: 600_000, Unit: "bytes/min", Why: "ten kilobytes a second are little for a host"},
			{Name: timesFit, Relation: scenario.AtMost, Bound: 0.5, Why: "in parts of what was measured; a handful of events differ by as much from the next handful"},
			{Name: bytesFit, Relation: scenario.AtMost, Bound: 0.35, Why: "in parts of what was measured"},
		},
		Takes: 3 * time.Minute, TakesQuick: 6 * time.Second,
		Run: func(r *scenario.Run) error { return run(r, measure) },
	}
}

func run(r *scenario.Run, measure func(Config) (Result, error)) error {
	// Most of the memory is short-lived: less frequent garbage collection halves the run time.
	defer debug.SetGCPercent(debug.SetGCPercent(300))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1600 << 20))

	sizes := r.Ints("members")
	slices.Sort(sizes)
	slices.Reverse(sizes) // start the largest fleet first, because it takes longest
	configs := make([]Config, len(sizes))
	for i, n := range sizes {
		configs[i] = Config{
			Members: n, Events: r.Int("events") * min(3, sizes[0]/n), Burst: r.Float("burst"), Loss: r.Float("loss"),
			Encrypted: r.Bool("encrypted"), Interval: r.Duration("exchange-interval"), Seed: r.Seed(), Step: r.Step,
		}
		r.Steps(configs[i].Steps())
	}
	fleets := make([]Result, len(sizes))
	err := r.Parallel(len(sizes), func(i int) (err error) {
		fleets[i], err = measure(configs[i])
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(fleets)

	judgeEvents(r, fleets)
	showIdle(r, fleets)
	laws := findLaws(fleets)
	showLaws(r, laws, fleets)
	plotTimes(r, laws)
	plotBytes(r, laws)
	return nil
}

func judgeEvents(r *scenario.Run, fleets []Result) {
	t := r.Table(scenario.Table{
		Name: "events", Title: "Until members have seen an event, and what it costs each of them",
		Note:  "Means of all events of a kind, but for the worst. Bytes are those of gossip beyond an idle member's. A leave counts from the announcement of the leaving member, a crash from the death.",
		Group: 1,
		Columns: []scenario.Column{
			{Name: "members", Key: true}, {Name: "event", Key: true}, {Name: "seen", Unit: "times"},
			{Name: "95 % know", Unit: "s", Digits: 2}, {Name: "all know", Unit: "s", Digits: 2}, {Name: "worst", Unit: "s", Digits: 2},
			{Name: "gossip per member", Unit: "kB", Digits: 1},
		},
	})
	for _, f := range fleets {
		for _, kind := range Kinds() {
			var worst time.Duration
			for n, e := range f.Events[kind] {
				worst = max(worst, e.Last)
				where := fmt.Sprintf("%s %d of %d members", kind, n+1, f.Members)
				switch kind {
				case Join:
					r.Check(joined, e.Most.Seconds(), where)
				case Leave:
					r.Check(left, e.Most.Seconds(), where)
				case Crash:
					r.Require(scenario.Measurement{Promise: crashed, Value: e.Most.Seconds(), Bound: 11 + 4*math.Log10(float64(f.Members)), Where: where})
				}
				if kind != Crash {
					r.Check(converged, e.Last.Seconds(), where)
				}
			}
			t.Add(f.Members, string(kind), len(f.Events[kind]), f.mean(kind, most), f.mean(kind, last), worst.Seconds(), f.mean(kind, gossiped)/1000)
		}
		r.Check(noDeath, float64(f.WrongDeaths)/float64(f.Members*len(f.Events[Leave])), fmt.Sprintf("%d of %d members", f.WrongDeaths, f.Members))
	}
}

func most(e Event) float64     { return e.Most.Seconds() }
func last(e Event) float64     { return e.Last.Seconds() }
func gossiped(e Event) float64 { return e.Gossip }
func streamed(e Event) float64 { return e.Streamed }

// mean returns the mean of a value over all events of a kind.
func (f Result) mean(kind Kind, of func(Event) float64) float64 {
	sum := 0.0
	for _, e := range f.Events[kind] {
		sum += of(e)
	}
	return sum / float64(len(f.Events[kind]))
}

func showIdle(r *scenario.Run, fleets []Result) {
	t := r.Table(scenario.Table{
		Name: "idle", Title: "What one member sends in a minute in which nothing happens",
		Note: "Payloads; IP and UDP add 28 bytes to each packet. Probes are all of the packets, full exchanges of members nearly all of the streams.",
		Columns: []scenario.Column{
			{Name: "members", Key: true}, {Name: "packets"}, {Name: "in packets", Unit: "kB", Digits: 1}, {Name: "in streams", Unit: "kB", Digits: 1},
			{Name: "a joiner's streams", Unit: "kB", Digits: 0},
		},
	})
	for _, f := range fleets {
		t.Add(f.Members, int(math.Round(f.Idle.Packets)), f.Idle.PacketBytes/1000, f.Idle.StreamBytes/1000, f.mean(Join, streamed)/1000)
		r.Check(quiet, f.Idle.Bytes(), fmt.Sprintf("%d members", f.Members))
	}
}

// quantity is a value measured at each size, with its laws.
type quantity struct {
	name   string
	unit   string
	shape  shape
	of     func(Result) float64
	judged string // the promise about the error of the law; "" if the value is too random

	points []point
	// small is the law without the largest fleet, all is the law of all fleets.
	small, all law
}

// quantities returns the extrapolated quantities, each with its expected growth.
func quantities() []quantity {
	event := func(k Kind, of func(Event) float64) func(Result) float64 {
		return func(f Result) float64 { return f.mean(k, of) }
	}
	return []quantity{
		{name: "join, 95 % know", unit: "s", shape: logarithm, of: event(Join, most), judged: timesFit},
		{name: "leave, 95 % know", unit: "s", shape: logarithm, of: event(Leave, most), judged: timesFit},
		{name: "crash, 95 % know", unit: "s", shape: logarithm, of: event(Crash, most), judged: timesFit},
		{name: "burst, 95 % know", unit: "s", shape: logarithm, of: event(Burst, most)},
		{name: "join, gossip", unit: "bytes", shape: copies, of: event(Join, gossiped), judged: bytesFit},
		{name: "leave, gossip", unit: "bytes", shape: copies, of: event(Leave, gossiped), judged: bytesFit},
		{name: "crash, gossip", unit: "bytes", shape: copies, of: event(Crash, gossiped), judged: bytesFit},
		{name: "burst, gossip", unit: "bytes", shape: share, of: event(Burst, gossiped), judged: bytesFit},
		{name: "joiner, streams", unit: "bytes", shape: linear, of: event(Join, streamed), judged: bytesFit},
		{name: "idle, packets", unit: "bytes/min", shape: logarithm, of: func(f Result) float64 { return f.Idle.PacketBytes }, judged: bytesFit},
		{name: "idle, streams", unit: "bytes/min", shape: exchanges, of: func(f Result) float64 { return f.Idle.StreamBytes }, judged: bytesFit},
	}
}

// findLaws fits the laws of each quantity; fleets are in ascending order of size.
func findLaws(fleets []Result) []quantity {
	out := quantities()
	for i := range out {
		q := &out[i]
		for _, f := range fleets {
			q.points = append(q.points, point{float64(f.Members), q.of(f)})
		}
		q.small = fit(q.shape, q.points[:max(1, len(q.points)-1)])
		q.all = fit(q.shape, q.points)
	}
	return out
}

func (q quantity) largest() point { return q.points[len(q.points)-1] }

func showLaws(r *scenario.Run, laws []quantity, fleets []Result) {
	predict := float64(r.Int("predict"))
	t := r.Table(scenario.Table{
		Name: "laws", Title: fmt.Sprintf("Fitted without the largest fleet, held against it, and extrapolated to %v members", predict),
		Columns: []scenario.Column{
			{Name: "quantity", Key: true}, {Name: "unit", Key: true}, {Name: "law of the smaller fleets"},
			{Name: "predicts", Digits: 2}, {Name: "measured", Digits: 2}, {Name: "error", Unit: "%", Digits: 0},
			{Name: "extrapolated, law of all", Digits: 1},
		},
	})
	for _, q := range laws {
		l := q.largest()
		t.Add(q.name, q.unit, q.small.String(), q.small.at(l.n), l.y, 100*q.small.off(l), q.all.at(predict))
	}
	idle := 0.0
	for _, q := range laws[len(laws)-2:] {
		idle += q.all.at(predict)
	}
	r.Check(quietAt, idle, fmt.Sprintf("%v members", predict))
	if len(fleets) < 3 {
		for _, promise := range []string{timesFit, bytesFit} {
			r.Skip(promise, "a law needs three sizes: two to find it, one to hold it against")
		}
		return
	}
	for _, q := range laws {
		if q.judged != "" {
			r.Check(q.judged, math.Abs(q.small.off(q.largest())), q.name)
		}
	}
}

// draw adds a quantity and its law to a plot.
func draw(p *scenario.Plot, name string, q quantity, predict, scale float64) {
	points := p.Scatter(name)
	for _, at := range q.points {
		points.At(at.n, max(at.y, 1e-3)*scale)
	}
	law := p.Dashed(name + ", law")
	first := q.points[0].n
	for i := range 41 {
		n := first * math.Pow(predict/first, float64(i)/40)
		law.At(n, max(q.all.at(n), 1e-3)*scale)
	}
}

func find(laws []quantity, name string) quantity {
	return laws[slices.IndexFunc(laws, func(q quantity) bool { return q.name == name })]
}

func plotTimes(r *scenario.Run, laws []quantity) {
	predict := float64(r.Int("predict"))
	crash := find(laws, "crash, 95 % know")
	p := r.Plot(scenario.Plot{
		Name: "times", Title: "Until 95 % of the members know",
		X: scenario.Axis{Label: "members", Unit: "members", Log: true}, Y: scenario.Axis{Label: "time", Unit: "s"},
		Conclusion: fmt.Sprintf("Times grow with the logarithm of the members: a crash is known after %.0f s among %v and would be after %.0f s among %v.", crash.largest().y, crash.largest().n, crash.all.at(predict), predict),
	})
	for _, kind := range []Kind{Join, Leave, Crash} {
		draw(p, string(kind), find(laws, string(kind)+", 95 % know"), predict, 1)
	}
}

func plotBytes(r *scenario.Run, laws []quantity) {
	predict := float64(r.Int("predict"))
	streams, packets := find(laws, "idle, streams"), find(laws, "idle, packets")
	p := r.Plot(scenario.Plot{
		Name: "bytes", Title: "What one member sends",
		X: scenario.Axis{Label: "members", Unit: "members", Log: true}, Y: scenario.Axis{Label: "bytes", Unit: "kB", Log: true},
		Conclusion: fmt.Sprintf("Probes cost the same at every size; the exchanges of full states grow with it and would be %.0f of %.0f kB a minute among %v members.", streams.all.at(predict)/1000, (streams.all.at(predict)+packets.all.at(predict))/1000, predict),
	})
	draw(p, "idle, packets in a minute", packets, predict, 1e-3)
	draw(p, "idle, streams in a minute", streams, predict, 1e-3)
	for _, kind := range Kinds() {
		draw(p, string(kind)+", gossip", find(laws, string(kind)+", gossip"), predict, 1e-3)
	}
}

// law is y = a + b·g(n); shape is g.
type law struct {
	shape shape
	a, b  float64
}

// shape is the growth of a quantity with the number of members, as text and as a function.
type shape struct {
	text string
	grow func(n float64) float64
}

// The shapes. An epidemic broadcast needs a number of rounds that grows with the logarithm of
// n, and the suspicion timeout is defined by the logarithm. memberlist sends each message about
// a member a constant times ⌈log10(n+1)⌉ times, package membership sends each broadcast
// ln n + 12 times, and memberlist exchanges full states less often the more members there are.
var (
	logarithm = shape{"log10 n", math.Log10}
	copies    = shape{"⌈log10(n+1)⌉", func(n float64) float64 { return math.Ceil(math.Log10(n + 1)) }}
	share     = shape{"n·(ln n + 12)", func(n float64) float64 { return n * (math.Log(n) + 12) }}
	linear    = shape{"n", func(n float64) float64 { return n }}
	exchanges = shape{"n/(⌈log2(n/32)⌉+1)", func(n float64) float64 {
		if n <= 32 {
			return n
		}
		return n / (math.Ceil(math.Log2(n/32)) + 1)
	}}
)

// point is a measurement at one size.
type point struct{ n, y float64 }

// fit finds the law of a shape by least squares of the relative errors, so that small fleets
// have the same weight as large ones. If the shape has the same value at all sizes, the law is
// proportional to the shape (a = 0).
func fit(s shape, points []point) law {
	var w, wg, wgg, wy, wgy float64
	for _, p := range points {
		g, weight := s.grow(p.n), 1/max(p.y*p.y, 1e-12)
		w += weight
		wg += weight * g
		wgg += weight * g * g
		wy += weight * p.y
		wgy += weight * g * p.y
	}
	d := w*wgg - wg*wg
	if d <= 1e-9*w*wgg {
		return law{shape: s, b: wgy / wgg}
	}
	b := (w*wgy - wg*wy) / d
	return law{s, (wy - b*wg) / w, b}
}

func (l law) at(n float64) float64 { return l.a + l.b*l.shape.grow(n) }

// off returns the error of the law at a point, relative to the measured value.
func (l law) off(p point) float64 { return (l.at(p.n) - p.y) / p.y }

func (l law) String() string {
	return fmt.Sprintf("%.4g %+.4g · %s", l.a, l.b, l.shape.text)
}
