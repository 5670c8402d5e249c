package selection

import (
	"fmt"
	"time"
)

// Decision tells how a pick went, or would go, for people.
type Decision struct {
	// Pairs are the draws in their order. It is empty where the range left no
	// choice.
	Pairs []DrawnPair
	// RunningWinner is W, what the winners of recent picks scored; 0 before the
	// first. A pick whose best is worse draws again.
	RunningWinner float64
	// Candidates is how many endpoints could be drawn, of the tier that was
	// chosen, and Range how many there are in all.
	Candidates, Range int
	// Winner is the endpoint that gets the request, with what it was judged by,
	// and Reason one sentence about why.
	Winner Candidate
	Reason string

	dry bool // changes nothing
}

// DrawnPair is two endpoints that were compared. Second is empty where the draws met
// no other that may be picked.
type DrawnPair struct {
	First, Second Candidate
	// Redrawn says that another pair was drawn after this one, because the best
	// so far was worse than RunningWinner.
	Redrawn bool
	// Handicap is by how much the second must be better than the first to win;
	// 1 but where the first one's weight is a half of all or more.
	Handicap float64
}

// Candidate is one endpoint as a pick saw it. Its score, of which the lowest wins,
// is Latency · (Queue + 1) / Success² / Ramp, with the latency in nanoseconds.
type Candidate struct {
	ID     string
	Tier   uint8
	Weight float64
	// State is "active", "evicted" or "half_open".
	State string
	// Latency is what the score uses: the estimate, relaxed towards the median of
	// the range where it is above, the median without one, and at least half of
	// the time for which requests wait for any answer.
	Latency time.Duration
	// Queue is how many requests are expected to be before this one.
	Queue float64
	// Full says that it has as many requests as it takes, and lost for that.
	Full bool
	// Success is the success average, 0.05 to 1.
	Success float64
	// Ramp is the progress of a newcomer, 0.1 to 1.
	Ramp  float64
	Score float64
}

// Explain tells how a pick would go now. Where chance takes part it is a draw of
// its own. It changes nothing: no request is counted, no half-open endpoint
// taken, no random source of the configuration read. The error is that of Pick.
func (b *Balancer) Explain(now Instant, excluded *Exclusion) (Decision, error) {
	d := Decision{dry: true}
	_, err := b.PickExplained(now, excluded, &d)
	return d, err
}

// PickExplained is Pick and tells how it went: d, which must not be nil, is
// overwritten. It allocates.
func (b *Balancer) PickExplained(now Instant, excluded *Exclusion, d *Decision) (Pick, error) {
	*d = Decision{
		Pairs: d.Pairs[:0], RunningWinner: float64(b.winner.load()),
		Range: len(b.table.Load().entries), dry: d.dry,
	}
	p, err := b.pick(now, excluded, d)
	if err != nil {
		d.Reason = err.Error()
	}
	d.dry = false
	return p, err
}

// The methods below record. All of them do nothing on nil, which is what Pick
// passes.

// real reports whether the pick has effects.
func (d *Decision) real() bool { return d == nil || !d.dry }

func (d *Decision) among(c *candidates) {
	if d != nil {
		d.Candidates = len(c.drawn)
	}
}

func (d *Decision) pair(first, second *drawn, v *view, favoured bool) {
	if d != nil {
		d.addPair(first, second, v, favoured)
	}
}

func (d *Decision) addPair(first, second *drawn, v *view, favoured bool) {
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

// only is for a pick without an alternative.
func (d *Decision) only() {
	if d != nil {
		d.Reason = "it is the only endpoint that may be picked"
	}
}

func (d *Decision) probe() {
	if d != nil {
		d.Pairs = d.Pairs[:0]
		d.Reason = "it was drawn, and is tried with one request after its eviction"
	}
}

// last is for pickLast.
func (d *Decision) last(rank int) {
	if d != nil {
		d.Reason = [...]string{
			"the draws met only endpoints that this request has tried or that have no room; it is one of the candidates that are left",
			"this request has tried all candidates; it is beyond the effective range or in a tier without traffic",
			"no endpoint with a weight is left",
			"none that is left has room within this relay's share; it is the least full, and refuses what it cannot take",
			"only evicted endpoints are left",
			"all that are left have just refused a request because they are full; one is asked again",
		}[rank]
	}
}

func (d *Decision) won(best *drawn, b *Balancer, now Instant) {
	if d != nil {
		d.conclude(best, b, now)
	}
}

func (d *Decision) conclude(best *drawn, b *Balancer, now Instant) {
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
			d.Winner = c // as it was judged, before this request counts
		} else {
			others[c.ID] = true
		}
	}
	last := d.Pairs[len(d.Pairs)-1]
	switch {
	case last.Handicap > 1 && last.First.ID == id:
		d.Reason = fmt.Sprintf("it has a half of all weight or more, and %q is not %.0f times better", last.Second.ID, last.Handicap)
	case last.Handicap > 1:
		d.Reason = fmt.Sprintf("it is more than %.0f times better than %q, which has a half of all weight or more", last.Handicap, last.First.ID)
	case len(others) == 0:
		d.Reason = "the draws met no other that this request may be sent to"
	case len(others) == 1 && len(d.Pairs) == 1:
		d.Reason = fmt.Sprintf("it scores lower than %q, the other of the pair drawn", otherOf(last, id).ID)
		switch other := otherOf(last, id); {
		case other.Full:
			d.Reason = fmt.Sprintf("%q, the other of the pair drawn, has as many requests as it takes", other.ID)
		case last.First.Score == last.Second.Score:
			d.Reason = fmt.Sprintf("it scores the same as %q and was drawn first", other.ID)
		}
	default:
		d.Reason = fmt.Sprintf("it has the lowest score of the %d endpoints in %d pairs; pairs were drawn again while the best was worse than recent winners, or had requests of ours in flight while others of the range are not in use", len(others)+1, len(d.Pairs))
	}
}

func otherOf(p DrawnPair, id string) Candidate {
	if p.First.ID == id {
		return p.Second
	}
	return p.First
}

func (d *drawn) candidate(v *view) Candidate {
	latency, queue, success, ramp := d.state.parts(v)
	return Candidate{
		ID: d.entry.ID, Tier: d.entry.Tier, Weight: d.entry.Weight,
		State:   phase(d.state.phase.Load()).String(),
		Latency: time.Duration(latency), Queue: float64(queue), Success: float64(success), Ramp: float64(ramp),
		Score: float64(combine(latency, queue, success, ramp)), Full: d.room(v.tick) != HasRoom,
	}
}
