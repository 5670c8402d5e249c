package peering

import (
	"slices"
	"strings"
	"time"
)

// Grace keeps vanished members in the plan for a limited time, in their old position: a
// process that restarts then gets the same range as before, and no other range moves.
type Grace[M any] struct {
	period  time.Duration
	id      func(M) string
	members []M           // present at the last update
	gone    []vanished[M] // longest gone first
}

type vanished[M any] struct {
	member M
	since  time.Time
}

// NewGrace returns a Grace of the given period; zero or less means no grace. id returns
// the identity of a member, which must stay the same over restarts.
func NewGrace[M any](period time.Duration, id func(M) string) *Grace[M] {
	return &Grace[M]{period: period, id: id}
}

// Update takes the members that are present now, whose slice must not change any more. It returns the
// absent members whose grace has not ended, longest gone first, and the time at which the first grace
// ends, zero for none. The slice is the caller's.
func (g *Grace[M]) Update(present []M, now time.Time) (absent []M, next time.Time) {
	g.gone = slices.DeleteFunc(g.gone, func(v vanished[M]) bool { return now.Sub(v.since) >= g.period })
	// Most updates are of other members or of what a member offers.
	if !slices.EqualFunc(g.members, present, func(a, b M) bool { return g.id(a) == g.id(b) }) {
		g.compare(present, now)
	}
	g.members = present
	for _, v := range g.gone {
		absent = append(absent, v.member)
	}
	if len(g.gone) > 0 {
		next = g.gone[0].since.Add(g.period)
	}
	return absent, next
}

// compare updates who is gone.
func (g *Grace[M]) compare(present []M, now time.Time) {
	there := make(map[string]struct{}, len(present))
	for _, m := range present {
		there[g.id(m)] = struct{}{}
	}
	g.gone = slices.DeleteFunc(g.gone, func(v vanished[M]) bool {
		_, back := there[g.id(v.member)]
		return back
	})
	var fresh []vanished[M]
	for _, m := range g.members {
		if _, still := there[g.id(m)]; !still && g.period > 0 {
			fresh = append(fresh, vanished[M]{m, now})
		}
	}
	slices.SortFunc(fresh, func(a, b vanished[M]) int { // plans need an order that does not depend on that of present
		return strings.Compare(g.id(a.member), g.id(b.member))
	})
	g.gone = append(g.gone, fresh...)
}
