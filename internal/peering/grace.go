package peering

import (
	"slices"
	"time"
)

// Grace keeps vanished members in the plan for a limited time, in their old position: a
// process that restarts then gets the same range as before, and no other range moves.
type Grace[M any] struct {
	period  time.Duration
	id      func(M) string
	members map[string]M
	gone    []vanished[M] // longest gone first
}

type vanished[M any] struct {
	member M
	since  time.Time
}

// NewGrace returns a Grace of the given period; zero or less means no grace. id returns
// the identity of a member, which must stay the same over restarts.
func NewGrace[M any](period time.Duration, id func(M) string) *Grace[M] {
	return &Grace[M]{period: period, id: id, members: map[string]M{}}
}

// Update takes the members that are present now. It returns the absent members whose
// grace has not ended, longest gone first, and the time at which the first grace ends,
// zero for none. The slice is the caller's.
func (g *Grace[M]) Update(present []M, now time.Time) (absent []M, next time.Time) {
	there := make(map[string]M, len(present))
	for _, m := range present {
		there[g.id(m)] = m
	}
	g.gone = slices.DeleteFunc(g.gone, func(v vanished[M]) bool {
		_, back := there[g.id(v.member)]
		return back || now.Sub(v.since) >= g.period
	})
	var fresh []vanished[M]
	for id, m := range g.members {
		if _, still := there[id]; !still && g.period > 0 {
			fresh = append(fresh, vanished[M]{m, now})
		}
	}
	slices.SortFunc(fresh, func(a, b vanished[M]) int { // the order of a map is random; plans need a fixed order
		if g.id(a.member) < g.id(b.member) {
			return -1
		}
		return 1
	})
	g.gone = append(g.gone, fresh...)
	g.members = there
	for _, v := range g.gone {
		absent = append(absent, v.member)
	}
	if len(g.gone) > 0 {
		next = g.gone[0].since.Add(g.period)
	}
	return absent, next
}
