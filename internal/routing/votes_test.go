package routing

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/advertise"
)

// voters are endpoints that advertise these numbers of relays.
func voters(relays ...int) (endpoints []*advertise.Endpoint) {
	for _, n := range relays {
		endpoints = append(endpoints, &advertise.Endpoint{Service: advertise.Service{Name: "echo", Relays: int32(n), State: advertise.Ready}, Worker: &advertise.Worker{}})
	}
	return endpoints
}

func TestMostWorkersDecideHowManyRelaysTheirServiceHas(t *testing.T) {
	for _, test := range []struct {
		advertised []int
		want       int // 0: the setting
	}{
		{nil, 0},
		{[]int{0, 0}, 0},
		{[]int{5}, 5},
		{[]int{5, 5, 9}, 5},
		{[]int{5, 9}, 5},
		{[]int{1024, 0, 0}, 0},
		{[]int{1024, 1000, 64, 5, 5}, 64}, // who asks for too many asks for the most there may be
		{[]int{3, 0}, 0},
	} {
		if got := winner(CountVotes(voters(test.advertised...), 64).Relays); got != test.want {
			t.Errorf("%v: %d, want %d", test.advertised, got, test.want)
		}
	}
}

func TestAWorkerThatTakesNoRequestsHasNoVote(t *testing.T) {
	endpoints := voters(5, 9, 9)
	endpoints[1].State, endpoints[2].State = advertise.Draining, advertise.Draining
	if got := winner(CountVotes(endpoints, 64).Relays); got != 5 {
		t.Errorf("%d, want 5", got)
	}
}

// The reference looks, for each value, how many have it.
func TestTheWinnerHasTheMostVotesAndIsTheSmallestOfThose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 6).Draw(t, "most")
		advertised := rapid.SliceOfN(rapid.IntRange(0, 8), 1, 20).Draw(t, "advertised")
		best, votes := 0, 0
		for candidate := range most + 1 {
			n := 0
			for _, one := range advertised {
				if min(one, most) == candidate {
					n++
				}
			}
			if n > votes {
				best, votes = candidate, n
			}
		}
		ballot := CountVotes(voters(advertised...), most).Relays
		if got := winner(ballot); got != best || ballot[got] != votes {
			t.Fatalf("%v, at most %d: %d with %d votes, want %d with %d", advertised, most, got, ballot[got], best, votes)
		}
		slices.Reverse(advertised)
		if got := winner(CountVotes(voters(advertised...), most).Relays); got != best {
			t.Fatalf("in another order it is %d, not %d", got, best)
		}
	})
}
