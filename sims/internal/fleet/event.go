package fleet

import "math/rand/v2"

// Event is one change of a fleet.
type Event struct {
	Name   string
	Relays bool // whether it happens to a relay
	Joins  bool
	Change func(f Fleet, random *rand.Rand, trial int) Fleet
}

// Events are one member more or less.
func Events() []Event {
	return []Event{
		{"worker joins", false, true, func(f Fleet, _ *rand.Rand, trial int) Fleet {
			return Fleet{f.Relays, With(f.Workers, newcomer(len(f.Workers), trial))}
		}},
		{"worker leaves", false, false, func(f Fleet, random *rand.Rand, _ int) Fleet {
			return Fleet{f.Relays, Without(f.Workers, random.IntN(len(f.Workers)))}
		}},
		{"relay joins", true, true, func(f Fleet, _ *rand.Rand, trial int) Fleet {
			return Fleet{With(f.Relays, newcomer(len(f.Relays), trial)), f.Workers}
		}},
		{"relay leaves", true, false, func(f Fleet, random *rand.Rand, _ int) Fleet {
			return Fleet{Without(f.Relays, random.IntN(len(f.Relays))), f.Workers}
		}},
	}
}

// newcomer is the number of the member that joins in a trial: always another one.
func newcomer(members, trial int) int { return members + trial }

// Bound is the fewest connections that an event can move.
func (s Size) Bound(e Event) float64 {
	if e.Relays {
		return s.RelayBound()
	}
	return s.WorkerBound()
}
