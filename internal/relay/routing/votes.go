package routing

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/selection/strategy"
)

// DefaultMaxRelaysPerService is the most relays that workers can ask for.
const DefaultMaxRelaysPerService = 64

// Votes are what the workers of a service advertise for the service as a whole:
// one vote per worker that takes requests, by value. The value with the most votes
// is used, of equally many the smaller. A worker that advertises nothing votes for
// the relays' setting; otherwise one worker out of a hundred silent ones would
// decide for all, and could draw all requests to itself.
type Votes struct {
	// Selections are strategies, written in full; "" is the setting.
	Selections map[string]int
	// Relays are numbers of relays, at most the bound that the relays have; 0 is the
	// setting.
	Relays map[int]int

	invalid map[string]error // strategies that make no sense and have no votes
}

// CountVotes counts those of the endpoints. A worker that asks for more relays than
// mostRelays asks for as many.
func CountVotes(endpoints []*advertise.Endpoint, mostRelays int) Votes {
	v := Votes{Selections: map[string]int{}, Relays: map[int]int{}}
	written := map[string]int{}
	for _, e := range endpoints {
		if e.State == advertise.Ready {
			written[e.Selection]++
			v.Relays[min(e.Relays, mostRelays)]++
		}
	}
	for text, n := range written {
		if text == "" {
			v.Selections[""] += n
			continue
		}
		spec, err := strategy.Parse(text)
		if err != nil {
			if v.invalid == nil {
				v.invalid = map[string]error{}
			}
			v.invalid[text] = err
			continue
		}
		v.Selections[spec.String()] += n // "slots" and "slots;vnodes=8" say the same
	}
	return v
}

// Ranked are the values of votes, the one that wins first.
func Ranked[V cmp.Ordered](votes map[V]int) []V {
	return slices.SortedFunc(maps.Keys(votes), func(a, b V) int {
		return cmp.Or(votes[b]-votes[a], cmp.Compare(a, b))
	})
}

// winner is the value that wins, zero for the setting.
func winner[V cmp.Ordered](votes map[V]int) (won V) {
	if ranked := Ranked(votes); len(ranked) > 0 {
		won = ranked[0]
	}
	return won
}

// advertised is the strategy that wins among those that the endpoints advertise. It
// is not ok when the relay's setting wins.
func (c *choosing) advertised(service string, of *chosen, votes Votes) (spec strategy.Spec, ok bool) {
	for _, text := range slices.Sorted(maps.Keys(votes.invalid)) {
		if !slices.Contains(of.advertised, text) {
			c.problems.WithLabelValues(problemInvalid).Inc()
			c.logger.Warn("the strategy that a service advertises is not used: it makes no sense", "service", service, "selection", text, "err", votes.invalid[text])
		}
	}
	ranked := Ranked(votes.Selections)
	said := append(slices.Sorted(maps.Keys(votes.invalid)), slices.Sorted(maps.Keys(votes.Selections))...)
	if len(ranked) > 1 && !slices.Equal(said, of.advertised) {
		c.problems.WithLabelValues(problemDisagreement).Inc()
		c.logger.Warn("the workers of a service advertise different strategies; most of them decide", "service", service,
			"used", cmp.Or(ranked[0], "the relay's setting"), "advertised", strings.Join(ranked, " "))
	}
	of.advertised = said
	if won := winner(votes.Selections); won != "" {
		spec, err := strategy.Parse(won) // it was just written
		return spec, err == nil
	}
	return strategy.Spec{}, false
}
