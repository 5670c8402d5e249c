package membership

import (
	"slices"
	"strings"
	"time"
)

// Reason is how a member departed.
type Reason string

// The reasons. A member that announced its departure left; any other failed.
const (
	Left   Reason = "left"
	Failed Reason = "failed"
)

// Departure is a member that departed, as the node last saw it.
type Departure struct {
	Member Member    `json:"member"`
	Reason Reason    `json:"reason"`
	At     time.Time `json:"at"`
}

const (
	// departuresKept and departuresFor limit the departures in a snapshot. Diff reports a
	// member whose departure is not recorded any more as failed, the safer assumption.
	departuresKept = 1024
	departuresFor  = time.Hour
	// departuresMost limits them while the view is degraded: above any fleet that gossips.
	departuresMost = 1 << 15
)

// departures holds the recent departures, one entry for each id, oldest first. The event loop
// owns it.
type departures struct{ recent []Departure }

func (d *departures) add(dep Departure) {
	d.forget(dep.Member.ID)
	d.recent = append(d.recent, dep)
	d.cut(departuresMost)
}

// cut leaves the latest n.
func (d *departures) cut(n int) {
	if over := len(d.recent) - n; over > 0 {
		d.recent = slices.Delete(d.recent, 0, over)
	}
}

func (d *departures) find(id string) int {
	return slices.IndexFunc(d.recent, func(r Departure) bool { return r.Member.ID == id })
}

// forget removes a member that has returned.
func (d *departures) forget(id string) {
	d.recent = slices.DeleteFunc(d.recent, func(r Departure) bool { return r.Member.ID == id })
}

// list returns a copy without expired entries and without the oldest of too many, sorted by id. While
// the view is degraded, members that failed stay: by these entries a node that is cut off keeps its
// peers.
func (d *departures) list(now time.Time, degraded bool) []Departure {
	d.recent = slices.DeleteFunc(d.recent, func(r Departure) bool {
		return now.Sub(r.At) > departuresFor && !(degraded && r.Reason == Failed)
	})
	if !degraded {
		d.cut(departuresKept)
	}
	out := slices.Clone(d.recent)
	slices.SortFunc(out, func(a, b Departure) int { return strings.Compare(a.Member.ID, b.Member.ID) })
	return out
}
