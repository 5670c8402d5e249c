package routing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/strategy"
)

// DefaultMaxRelaysPerService is the largest number of relays that workers can ask for.
const DefaultMaxRelaysPerService = 64

// Votes are the advertisements of the workers of a service for the service as a whole: one
// vote per worker that takes requests, by value. The value with the most votes wins; among
// equals the smaller. A worker that advertises nothing votes for the relays' setting.
// Otherwise one worker among a hundred that advertise nothing would decide for all, and
// could attract all requests.
type Votes struct {
	// Selections are strategies in their full form; "" is the setting.
	Selections map[string]int
	// Relays are numbers of relays, at most the bound of the relays; 0 is the setting. A winner
	// below the minimum of relays per worker is raised to it; see RelaysRaised.
	Relays map[int]int
	// Policies are the values of the fields of policies, by key; "" is the setting.
	Policies map[string]map[string]int

	invalid         map[string]error // invalid strategies, which have no votes
	invalidPolicies map[string]error // policies with an invalid field, which has no vote
}

// CountVotes counts the votes of the endpoints. A number of relays above mostRelays counts
// as mostRelays.
func CountVotes(endpoints []*advertise.Endpoint, mostRelays int) Votes {
	v := Votes{Selections: map[string]int{}, Relays: map[int]int{}}
	written, policies := map[string]int{}, map[string]int{}
	for _, e := range endpoints {
		if e.State == advertise.Ready {
			written[e.Selection]++
			policies[e.Policy]++
			v.Relays[min(int(e.Relays), mostRelays)]++
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
		v.Selections[spec.String()] += n // "slots" and "slots;vnodes=8" are the same
	}
	v.countPolicies(policies)
	return v
}

// Ranked returns the values of votes, the winner first.
func Ranked[V cmp.Ordered](votes map[V]int) []V {
	return slices.SortedFunc(maps.Keys(votes), func(a, b V) int {
		return cmp.Or(votes[b]-votes[a], cmp.Compare(a, b))
	})
}

// winner returns the value that wins, zero for the setting.
func winner[V cmp.Ordered](votes map[V]int) (won V) {
	if ranked := Ranked(votes); len(ranked) > 0 {
		won = ranked[0]
	}
	return won
}

// RelaysAsked returns how many relays the workers ask for, 0 if most ask for none.
func (v *Votes) RelaysAsked() int { return winner(v.Relays) }

// RelaysRaised returns why the number of relays that the workers ask for is not the one in
// effect, given the minimum of relays per worker; empty if it is.
func (v *Votes) RelaysRaised(peersPerWorker int) string {
	asked := v.RelaysAsked()
	if asked == 0 || asked >= peersPerWorker {
		return ""
	}
	return fmt.Sprintf("its workers ask for relays=%d, raised to %d by --min-peers-per-worker", asked, peersPerWorker)
}

// countPolicies counts the votes for each field of the policies, given by their text.
func (v *Votes) countPolicies(written map[string]int) {
	v.Policies = map[string]map[string]int{}
	for _, key := range advertise.PolicyKeys() {
		v.Policies[key] = map[string]int{}
	}
	for text, n := range written {
		policy, err := advertise.ParsePolicy(text)
		if err != nil {
			if v.invalidPolicies == nil {
				v.invalidPolicies = map[string]error{}
			}
			v.invalidPolicies[text] = err
		}
		for key, votes := range v.Policies {
			votes[policy.Get(key)] += n
		}
	}
}

// RankedPolicies returns the values of one field of the policies, the winner first. Among
// equals the shorter time is first.
func RankedPolicies(votes map[string]int) []string {
	return slices.SortedFunc(maps.Keys(votes), func(a, b string) int {
		first, _ := time.ParseDuration(a)
		second, _ := time.ParseDuration(b)
		return cmp.Or(votes[b]-votes[a], cmp.Compare(first, second), cmp.Compare(a, b))
	})
}

// policy returns the policy that wins, field by field.
func (v *Votes) policy() (won advertise.Policy) {
	for key, votes := range v.Policies {
		if ranked := RankedPolicies(votes); len(ranked) > 0 && ranked[0] != "" {
			_ = won.Set(key, ranked[0]) // cannot fail: the text comes from Policy.Get
		}
	}
	return won
}
