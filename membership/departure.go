package membership

import (
	"slices"
	"strings"
	"time"
)

// Reason says how a member went.
type Reason string

// The ways to go. A member that announced its going left; any other failed.
const (
	Left   Reason = "left"
	Failed Reason = "failed"
)

// Departure is a member that went, as the node last saw it.
type Departure struct {
	Member Member    `json:"member"`
	Reason Reason    `json:"reason"`
	At     time.Time `json:"at"`
}

const (
	// departuresKept and departuresFor bound what a snapshot remembers. Diff takes
	// a member that went and was forgotten for failed, the careful guess.
	departuresKept = 1024
	departuresFor  = time.Hour
)

// departures is the memory of who went lately, one entry for each id, oldest
// first. The event loop owns it.
type departures struct{ recent []Departure }

func (d *departures) add(dep Departure) {
	d.forget(dep.Member.ID)
	d.recent = append(d.recent, dep)
	if over := len(d.recent) - departuresKept; over > 0 {
		d.recent = slices.Delete(d.recent, 0, over)
	}
}

func (d *departures) find(id string) int {
	return slices.IndexFunc(d.recent, func(r Departure) bool { return r.Member.ID == id })
}

// forget is called when the member is back.
func (d *departures) forget(id string) {
	d.recent = slices.DeleteFunc(d.recent, func(r Departure) bool { return r.Member.ID == id })
}

// list returns a copy without the expired, sorted by id.
func (d *departures) list(now time.Time) []Departure {
	d.recent = slices.DeleteFunc(d.recent, func(r Departure) bool { return now.Sub(r.At) > departuresFor })
	out := slices.Clone(d.recent)
	slices.SortFunc(out, func(a, b Departure) int { return strings.Compare(a.Member.ID, b.Member.ID) })
	return out
}
