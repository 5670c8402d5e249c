package routing

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/advertise"
)

// demand decides what this relay states about its traffic. For the services that it serves it
// measures the requests per second that it sends to workers. The others assume of a relay what
// it states, or the mean of what is stated if it states nothing, and more where fewer relays of its zone
// serve than of theirs. So
//
//   - while all relays of a service carry about the same, one statement is enough: that of the
//     first relay in the order of the plan. The others find their own traffic near it and state
//     nothing; those that did earlier take it back after ten memories.
//   - once two rates differ, stated ones or the relay's own, every relay of the service states
//     its traffic, because the mean of some of them would be wrong for the rest.
//
// Rates are stated in quarter octaves: a fleet whose traffic doubles over a day changes one
// statement four times if it is equal, and one for each relay four times otherwise. A relay
// states another rate when its own has left the step by more than a quarter of a step, or by four
// standard deviations of a Poisson stream where that is more. Two rates differ when they are
// further apart than both of these errors: 1.5 steps (30 %) from 140 requests per second on.
//
// A relay states a difference only when it lasts a third longer than a memory. Before that the
// first relay states its new rate, so traffic that changes on all relays alike remains one
// statement. A fleet that starts unequal agrees after 80 s: the first relay after a memory, the
// rest one such time later. One that becomes unequal needs up to 150 s, because the averages must
// change first and the relays that differ least are the last to see it.
//
// demand is pure: time and counts are passed in.
type demand struct {
	// memory is the time constant of the average. A statement changes at most once in it.
	memory time.Duration

	services map[string]*carried
	stated   []advertise.Traffic // sorted by service
	at       time.Time           // of the last change of stated
}

const (
	// keepFactor is after how many memories a statement is taken back that no request, or no
	// difference to the others, justifies: 5 minutes by default.
	keepFactor = 10
	// measureFactor is how often in a memory rates are measured: every 2 s by default.
	measureFactor = 15
	// noiseFactor is how many standard deviations of its average a rate must move. A steady Poisson
	// stream of 10/s between two steps changed its statement 175 times in a day with two, 21 times
	// with three, and once with four.
	noiseFactor = 4
	// leastMargin is how far, in steps, a rate must leave its step however steady it is.
	leastMargin = 0.25
	// stepsPerOctave are quarter octaves: an error of at most 9 %.
	stepsPerOctave = 4
)

// served is a service that this relay serves, at one moment.
type served struct {
	service string
	sent    uint64 // requests since the start
	index   int    // of this relay among those of the service
	others  []statedRate
}

// statedRate is what another relay of the service states, and what the plan would assume of this one
// by it alone: in a zone where fewer relays serve, each carries more.
type statedRate struct {
	index int
	rate  int
}

// mistaken returns by how much, at most, the others would be wrong about a rate that is not stated:
// they take the mean of what is stated for it, so a relay that carries little among busy ones must
// state that first. A relay at the mean or above it keeps what it states, whatever the others do,
// so that the choice comes to rest.
func (s *served) mistaken(rate float64) float64 {
	mean := 0.0
	for _, o := range s.others {
		mean += float64(o.rate) / float64(len(s.others))
	}
	return max(mean, rate)
}

// carried is the traffic of one service.
type carried struct {
	sent      uint64
	at        time.Time
	average   float64 // requests per second
	filled    float64 // the weight of what was measured in average, to 1
	requested time.Time

	states bool
	step   int       // of the stated rate
	since  time.Time // since when states should be the other way; zero: it should not
}

// update measures and returns what this relay must state, and whether that has changed.
func (d *demand) update(now time.Time, services []served) (statement []advertise.Traffic, changed bool) {
	mayChange := d.at.IsZero() || now.Sub(d.at) >= d.memory
	next := make(map[string]*carried, len(services)) // services that this relay no longer serves are dropped
	var out []advertise.Traffic
	for _, s := range services {
		c := d.services[s.service]
		if c == nil {
			c = &carried{sent: s.sent, at: now, requested: now}
		}
		next[s.service] = c
		c.measure(now, s.sent, d.memory)
		c.evaluate(now, s, d.memory)
		if mayChange {
			c.decide(now, s, d.memory)
		}
		if c.states {
			out = append(out, advertise.Traffic{Service: s.service, Rate: rateOf(c.step)})
		}
	}
	d.services = next
	if len(out) > advertise.MaxTraffic {
		mistaken := make(map[string]float64, len(services))
		for _, s := range services {
			mistaken[s.service] = s.mistaken(float64(rateOf(next[s.service].step)))
		}
		slices.SortFunc(out, func(a, b advertise.Traffic) int {
			return cmp.Or(cmp.Compare(mistaken[b.Service], mistaken[a.Service]), cmp.Compare(a.Service, b.Service))
		})
		out = out[:advertise.MaxTraffic]
	}
	slices.SortFunc(out, func(a, b advertise.Traffic) int { return cmp.Compare(a.Service, b.Service) })
	if slices.Equal(out, d.stated) || !mayChange {
		return d.stated, false
	}
	d.stated, d.at = out, now
	return out, true
}

// measure adds the requests since the last call to the average.
func (c *carried) measure(now time.Time, sent uint64, memory time.Duration) {
	elapsed := now.Sub(c.at).Seconds()
	if elapsed <= 0 {
		return
	}
	fresh := 1 - math.Exp(-elapsed/memory.Seconds())
	c.average += (float64(sent-c.sent)/elapsed - c.average) * fresh
	c.filled += (1 - c.filled) * fresh
	if sent != c.sent {
		c.requested = now
	}
	c.sent, c.at = sent, now
}

// rate returns the requests per second. The first measurements count fully.
func (c *carried) rate() float64 {
	if c.filled == 0 {
		return 0
	}
	return c.average / c.filled
}

// evaluate notes since when this relay should begin to state its traffic, or stop.
func (c *carried) evaluate(now time.Time, s served, memory time.Duration) {
	spread, tolerance := c.spread(s, memory)
	var other bool
	switch {
	case !c.states && len(s.others) == 0:
		other = c.rate() >= 1
	case !c.states:
		other = spread > tolerance
	default:
		first := !slices.ContainsFunc(s.others, func(o statedRate) bool { return o.index < s.index })
		other = !first && spread <= tolerance/2
	}
	switch {
	case !other:
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = now
	}
}

// decide changes what is stated if it is time.
func (c *carried) decide(now time.Time, s served, memory time.Duration) {
	wait := memory + memory/3
	switch {
	case c.states:
		wait = keepFactor * memory
	case len(s.others) == 0: // in turn, so that one statement is enough for an equal fleet
		wait = memory + min(memory, time.Duration(s.index)*memory/measureFactor)
	}
	// A relay without requests among busy ones must state this, because without a statement the
	// others would assume their mean.
	idle := now.Sub(c.requested) >= keepFactor*memory && !slices.ContainsFunc(s.others, func(o statedRate) bool { return o.rate > 1 })
	position := stepOf(c.rate())
	switch due := !c.since.IsZero() && now.Sub(c.since) >= wait; {
	case c.states && (due || idle):
		c.states, c.since = false, time.Time{}
	case c.states && math.Abs(position-float64(c.step)) > 0.5+margin(c.rate(), memory):
		c.step = int(math.Round(position))
	case !c.states && due:
		c.states, c.step, c.since = true, int(math.Round(position)), time.Time{}
	}
}

// spread returns how many steps lie between the least and the greatest rate of the service that
// this relay knows, and how many may lie there by chance.
func (c *carried) spread(s served, memory time.Duration) (steps, tolerance float64) {
	least := max(1, c.rate())
	most := least
	for _, o := range s.others {
		least, most = min(least, float64(max(1, o.rate))), max(most, float64(o.rate))
	}
	return stepOf(most) - stepOf(least), 2 * (0.5 + margin(least, memory))
}

// stepOf returns the position of a rate on the scale of steps; 1 request per second and less
// have position 0.
func stepOf(rate float64) float64 { return stepsPerOctave * math.Log2(max(1, rate)) }

// rateOf returns the rate that is stated for a step.
func rateOf(step int) int32 {
	return int32(min(max(1, math.Round(math.Exp2(float64(step)/stepsPerOctave))), advertise.MaxTrafficRate))
}

// margin returns by how many steps the average of a rate may leave a step by chance. The average
// of a Poisson stream has the relative standard deviation 1/sqrt(2·memory·rate).
func margin(rate float64, memory time.Duration) float64 {
	deviation := 1 / math.Sqrt(2*memory.Seconds()*max(1, rate))
	return max(leastMargin, noiseFactor*deviation*stepsPerOctave/math.Ln2)
}
