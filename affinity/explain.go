package affinity

import (
	"fmt"
	"slices"
	"strings"
)

// Explanation says whether a relay is to be connected to a worker, and why.
type Explanation struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Worker  string `json:"worker"`

	// Connected says that the plan connects the two.
	Connected bool `json:"connected"`
	// Weight is the share of the relay's traffic for the worker, 0 to 1.
	Weight float64 `json:"weight"`
	// Index is the relay's among the affine relays, -1 if it is not one of them.
	Index int `json:"index"`
	// Position is the worker's on the ring that the range refers to, of Ring workers; -1 if
	// the worker does not offer the service.
	Position int `json:"position"`
	Ring     int `json:"ring"`
	// Range is the relay's on that ring; it is empty with rendezvous.
	Range string `json:"range,omitempty"`
	// Distance is [Plan.Distance].
	Distance int `json:"distance"`
	// Tier is how near relay and worker are: same_dc, same_region or global. Home says that
	// the relay serves the worker's group for its own sake, and not only because the group
	// has too few relays at home.
	Tier string `json:"tier,omitempty"`
	Home bool   `json:"home"`
	// Reason is one sentence.
	Reason string `json:"reason"`
}

// String returns the reason.
func (e Explanation) String() string { return e.Reason }

// Explain says whether and why a relay is to be connected to a worker. Any two ids will do.
func (p *Plan) Explain(relay, worker string) Explanation {
	e := Explanation{Service: p.service, Relay: relay, Worker: worker, Index: -1, Position: -1, Distance: -1}
	index, affine := p.Index(relay)
	w, offered := p.position(worker)
	if affine {
		e.Index = index
	}
	if offered {
		e.Position, e.Ring = w, len(p.workers)
	}
	switch {
	case !affine && slices.Contains(p.skip, relay):
		e.Reason = fmt.Sprintf("%s does not serve %s: it is on the skip list; it forwards to one of the %d relays that do", relay, p.service, len(p.affine))
	case !affine:
		e.Reason = fmt.Sprintf("%s does not serve %s: the %d relays that do are %s", relay, p.service, len(p.affine), someOf(p.affine))
	case !offered:
		e.Reason = fmt.Sprintf("%s does not offer %s, or takes no requests now; %d other workers do", worker, p.service, len(p.workers))
	default:
		p.explain(&e, index, w)
	}
	return e
}

// explain fills in the case of an affine relay and a worker of the service.
func (p *Plan) explain(e *Explanation, index, worker int) {
	relayPlace := p.relayPlaces.distinct[p.relayPlaces.of[index]]
	workerPlace := p.workerPlaces.distinct[p.workerPlaces.of[worker]]
	e.Tier = relayPlace.Tier(workerPlace).String()
	s, pos := p.seatAt(index, worker)
	if s == nil {
		e.Reason = fmt.Sprintf("%s is in %v, which has enough relays of its own; %s is in %v, which has enough workers",
			e.Worker, workerPlace, e.Relay, relayPlace)
		return
	}
	shape := s.band.shape
	e.Position, e.Ring, e.Home, e.Distance = pos, len(s.group.workers), s.band.home, p.distance(*s, pos)
	e.Connected = e.Distance == 0
	if e.Connected {
		assignments, _ := p.Assignments(index) // the index is good
		for _, a := range assignments {
			if a.Worker == e.Worker {
				e.Weight = a.Weight
			}
		}
	}
	var reason strings.Builder
	switch {
	case shape.everything():
		e.Range = shape.project(s.local).String()
		fmt.Fprintf(&reason, "all relays of this ring (%d) connect to all of its workers (%d)", shape.Relays, shape.Workers)
	case s.band.links == nil:
		e.Range = shape.project(s.local).String()
		fmt.Fprintf(&reason, "%s is at position %d, %s the range %s of %s", e.Worker, pos, outside(e.Distance), e.Range, e.Relay)
	default:
		rank := p.rank(*s, pos)
		fmt.Fprintf(&reason, "%s is choice %d of %d for %s, which takes the first %d", e.Relay, rank+1, shape.Relays, e.Worker, shape.PeersPerWorker)
		if e.Connected && rank >= shape.PeersPerWorker {
			reason.WriteString("; it is connected all the same, because too few workers chose it")
		}
	}
	if !s.band.home {
		reason.WriteString("; it is a reserve, because too few relays are at home there")
	}
	e.Reason = reason.String()
}

func outside(distance int) string {
	if distance == 0 {
		return "inside"
	}
	return counted(distance, "place") + " outside"
}

// someOf lists a few ids.
func someOf(ids []string) string {
	const few = 5
	if len(ids) <= few {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:few], ", "), len(ids)-few)
}
