package membership

import "strings"

// Replacement is one member before and after.
type Replacement struct{ Old, New Member }

// Changes is what happened between two snapshots of one node. Every id is in at
// most one of the lists, and each list is sorted by id.
type Changes struct {
	// Joined are in the new snapshot only.
	Joined []Member
	// Left and Failed are in the old snapshot only, as they were there. A member
	// whose going was not announced, or is no longer remembered, failed.
	Left, Failed []Member
	// Superseded runs as another instance: it was restarted.
	Superseded []Replacement
	// Changed is the same instance with other properties.
	Changed []Replacement
}

// Empty reports whether nothing happened.
func (c Changes) Empty() bool {
	return len(c.Joined)+len(c.Left)+len(c.Failed)+len(c.Superseded)+len(c.Changed) == 0
}

// Diff compares two snapshots of one node, in O(n). A nil snapshot has no
// members. It is a pure function: what happened and was undone in between does
// not appear.
func Diff(before, after *Snapshot) Changes {
	var c Changes
	var a, b []Member
	if before != nil {
		a = before.members
	}
	if after != nil {
		b = after.members
	}
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = strings.Compare(a[0].ID, b[0].ID)
		}
		switch {
		case order < 0:
			if d, known := after.Departed(a[0].ID); known && d.Reason == Left {
				c.Left = append(c.Left, a[0])
			} else {
				c.Failed = append(c.Failed, a[0])
			}
			a = a[1:]
		case order > 0:
			c.Joined = append(c.Joined, b[0])
			b = b[1:]
		default:
			switch {
			case a[0].Epoch != b[0].Epoch:
				c.Superseded = append(c.Superseded, Replacement{a[0], b[0]})
			case a[0] != b[0]:
				c.Changed = append(c.Changed, Replacement{a[0], b[0]})
			}
			a, b = a[1:], b[1:]
		}
	}
	return c
}
