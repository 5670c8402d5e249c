package selection

import (
	"fmt"
	"time"
)

// Decision describes how a pick was made, or would be made, for operators.
type Decision struct {
	// Pairs are the pairs in the order in which they were drawn. It is empty if there
	// was no choice.
	Pairs []DrawnPair
	// RunningWinner is W, the average score of the winners of recent picks; 0 before the
	// first. A pick whose best score is higher draws another pair.
	RunningWinner float64
	// Candidates is the number of endpoints that could be drawn in the chosen tier, and
	// Range the number of endpoints in the range.
	Candidates, Range int
	// Winner is the endpoint that gets the request, with the figures that decided, and
	// Reason explains the choice in one sentence.
	Winner Candidate
	Reason string

	dryRun bool // the pick has no effects; see Explain
}

// DrawnPair is two endpoints that were compared. Second is empty if the draws found no
// second endpoint that may be picked.
type DrawnPair struct {
	First, Second Candidate
	// Redrawn is true if another pair was drawn after this one, because the best
	// so far was worse than RunningWinner.
	Redrawn bool
	// Handicap is how many times better the second must be than the first to win. It is
	// 1 unless the first has at least half of all weight.
	Handicap float64
}

// Candidate is one endpoint as a pick saw it. The lowest score wins. The score is
// Latency · (Queue + Headroom + 1) / Success² / Ramp, with the latency in nanoseconds.
type Candidate struct {
	ID     string
	Tier   uint8
	Weight float64
	State  State
	// Latency is the latency used by the score: the estimate, relaxed towards the median
	// of the range if it is bad and no request waits; the median if there is no estimate;
	// and at least half of the time for which requests have waited for any answer. It is a
	// quarter of that while the endpoint is good and idle and has had no answer for three
	// times the mean time between two requests to an endpoint, so that a request tries it.
	Latency time.Duration
	// Queue is the expected number of requests ahead of this one.
	Queue float64
	// Headroom is the room for usual queues, the same for all endpoints.
	Headroom float64
	// Full is true if the endpoint has no room for another request and so cannot win.
	Full bool
	// Success is the success average, 0.05 to 1.
	Success float64
	// Ramp is the progress of the slow start, 0.1 to 1.
	Ramp  float64
	Score float64
}

func (b *core) pickExplained(now Instant, excluded *Exclusion, d *Decision) (ticket, error) {
	*d = Decision{
		Pairs: d.Pairs[:0], RunningWinner: float64(b.winner.load()),
		Range: len(b.table.Load().entries), dryRun: d.dryRun,
	}
	p, err := b.pick(now, excluded, d)
	if err != nil {
		d.Reason = err.Error()
	}
	d.dryRun = false
	return p, err
}

// The methods below record the decision. On nil, which Pick passes, they do nothing.

// real reports whether the pick has effects.
func (d *Decision) real() bool { return d == nil || !d.dryRun }

func (d *Decision) among(c *candidates) {
	if d != nil {
		d.Candidates = len(c.drawn)
	}
}

func (d *Decision) pair(first, second *candidate, v *view, favoured bool) {
	if d != nil {
		d.addPair(first, second, v, favoured)
	}
}

func (d *Decision) addPair(first, second *candidate, v *view, favoured bool) {
	p := DrawnPair{First: first.candidate(v), Handicap: 1}
	if second != nil {
		p.Second = second.candidate(v)
	}
	if favoured {
		p.Handicap = dominance
	}
	if n := len(d.Pairs); n > 0 {
		d.Pairs[n-1].Redrawn = true
	}
	d.Pairs = append(d.Pairs, p)
}

// only records a pick without an alternative.
func (d *Decision) only() {
	if d != nil {
		d.Reason = "it is the only endpoint that may be picked"
	}
}

func (d *Decision) fewest(of int) {
	if d != nil {
		d.Reason = fmt.Sprintf("it has the fewest requests in flight for its weight of %d endpoints, because sessions are long", of)
	}
}

func (d *Decision) probe() {
	if d != nil {
		d.Pairs = d.Pairs[:0]
		d.Reason = "it was drawn, and one request tries it after its eviction"
	}
}

// last records the rank at which pickLast found the endpoint.
func (d *Decision) last(rank int) {
	if d != nil {
		d.Reason = [...]string{
			"the draws found only endpoints that this request has tried or that have no room; it is one of the remaining candidates",
			"this request has tried all candidates; it is beyond the effective range or in a tier without traffic",
			"no endpoint with a weight is left",
			"no remaining endpoint has room within this relay's share; it is the least full, and refuses requests by itself when it is full",
			"only evicted endpoints are left",
			"all remaining endpoints have just refused a request because they are full; one is tried again",
		}[rank]
	}
}

func (d *Decision) won(best *candidate, b *core, now Instant) {
	if d != nil {
		d.conclude(best, b, now)
	}
}

func (d *Decision) conclude(best *candidate, b *core, now Instant) {
	id := best.entry.ID
	var seen []Candidate
	for i := range d.Pairs {
		seen = append(seen, d.Pairs[i].First)
		if d.Pairs[i].Second.ID != "" {
			seen = append(seen, d.Pairs[i].Second)
		}
	}
	if len(seen) == 0 {
		v := b.view(now)
		d.Winner = best.candidate(&v)
		return
	}
	others := map[string]bool{}
	for _, c := range seen {
		if c.ID == id {
			d.Winner = c // the figures before this request counts
		} else {
			others[c.ID] = true
		}
	}
	last := d.Pairs[len(d.Pairs)-1]
	switch {
	case last.Handicap > 1 && last.First.ID == id:
		d.Reason = fmt.Sprintf("it has at least half of all weight, and %q is not %.0f times better", last.Second.ID, last.Handicap)
	case last.Handicap > 1:
		d.Reason = fmt.Sprintf("it is more than %.0f times better than %q, which has at least half of all weight", last.Handicap, last.First.ID)
	case len(others) == 0:
		d.Reason = "the draws found no other endpoint that this request may be sent to"
	case len(others) == 1 && len(d.Pairs) == 1:
		d.Reason = fmt.Sprintf("it scores lower than %q, the other of the pair drawn", otherOf(last, id).ID)
		switch other := otherOf(last, id); {
		case other.Full:
			d.Reason = fmt.Sprintf("%q, the other of the pair drawn, is full", other.ID)
		case last.First.Score == last.Second.Score:
			d.Reason = fmt.Sprintf("it scores the same as %q and was drawn first", other.ID)
		}
	default:
		d.Reason = fmt.Sprintf("it has the lowest score of the %d endpoints in %d pairs; more pairs were drawn because the best was worse than recent winners, or because it had requests of this relay in flight while others of the range are not in use", len(others)+1, len(d.Pairs))
	}
}

func otherOf(p DrawnPair, id string) Candidate {
	if p.First.ID == id {
		return p.Second
	}
	return p.First
}

func (d *candidate) candidate(v *view) Candidate {
	latency, queue, success, ramp := d.state.parts(v)
	return Candidate{
		ID: d.entry.ID, Tier: d.entry.Tier, Weight: d.entry.Weight,
		State:   phase(d.state.phase.Load()).exported(),
		Latency: time.Duration(latency), Queue: float64(queue), Headroom: float64(v.headroom), Success: float64(success), Ramp: float64(ramp),
		Score: float64(v.combine(latency, queue, success, ramp)), Full: d.room(v.tick) != hasRoom,
	}
}

// EndpointStats describes one endpoint for operators and the admin API.
type EndpointStats struct {
	ID     string
	Weight float64
	State  State
	// Latency is the estimate from successes and silences, 0 before the first.
	Latency time.Duration
	// InFlight is the number of this relay's requests in flight.
	InFlight int
	// Reported is the last in-flight count the endpoint sent, valid only if
	// HasReport.
	Reported  float64
	HasReport bool
	// SuccessAverage is s' of the score, 0 to 1.
	SuccessAverage float64
	// ErrorRate is the share of failures among recent requests (counts that
	// decay over 10 s), 0 to 1.
	ErrorRate float64
	// Picks and Failures count since the endpoint joined the range, or an earlier time from which it still has requests.
	Picks    uint64
	Failures uint64
	// ConsecutiveFailures counts since the last success.
	ConsecutiveFailures int
	// LastReason is why the endpoint was last evicted, "" if never.
	LastReason string
	// Usable is as [Balancer.Usable]. Full is true if the endpoint has no room, at its Limit or
	// because it has just refused a request.
	Usable, Full bool
	// Score is the cost of the next request; lower is better.
	Score float64
	// Ramp is the progress of the slow start, 0.1 to 1.
	Ramp float64
}

func (b *core) stats(now Instant) []EndpointStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table.Load()
	v := b.view(now)
	stats := make([]EndpointStats, len(t.entries))
	for i := range t.entries {
		e := &t.entries[i]
		one := e.candidate()
		s := e.state
		latency, _ := unpack(s.latency.Load())
		_, _, _, ramp := s.parts(&v)
		st := EndpointStats{
			ID:                  e.ID,
			Weight:              e.Weight,
			State:               phase(s.phase.Load()).exported(),
			Latency:             time.Duration(latency),
			InFlight:            int(s.outstanding()),
			HasReport:           s.reported.Load() == ownReport,
			SuccessAverage:      1,
			Picks:               s.picks.Load(),
			Failures:            s.failures.Load(),
			ConsecutiveFailures: int(s.consecutive.Load()),
			LastReason:          e.guarded.reason,
			Full:                one.room(v.tick) != hasRoom,
			Score:               float64(s.score(&v)),
			Ramp:                float64(ramp),
		}
		st.Usable = !st.Full && s.usable()
		if st.HasReport {
			last, _ := unpackPair(s.report.Load())
			st.Reported = float64(last)
		}
		if word := s.success.Load(); word != 0 {
			st.SuccessAverage = float64(relaxedSuccess(word, v.tick))
		}
		if failures, requests := s.decayedCounts(v.tick); requests > 0 {
			st.ErrorRate = float64(failures / requests)
		}
		stats[i] = st
	}
	return stats
}

// State is the state of an endpoint. The values are those of the admin API.
type State string

const (
	Active   State = "active"
	Evicted  State = "evicted"
	HalfOpen State = "half_open" // one request tests whether the endpoint works again
)

func (p phase) exported() State {
	switch p {
	case evicted:
		return Evicted
	case halfOpen:
		return HalfOpen
	default:
		return Active
	}
}
