package membership

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/membership/identity"
)

// Snapshot is the state of the cluster as this node saw it at one moment. It is immutable: it can
// be kept and shared between goroutines, and must not be changed.
type Snapshot struct {
	version  uint64
	members  []Member // sorted by ID
	self     string
	checksum uint64
	departed []Departure // sorted by ID
	degraded bool
}

// NewSnapshot takes ownership of members, which need not be sorted. A Node creates its own
// snapshots; this function is for tests and simulations of code that uses snapshots.
func NewSnapshot(version uint64, self string, members []Member) *Snapshot {
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return &Snapshot{version: version, members: members, self: self, checksum: checksum(members)}
}

// WithDepartures returns a copy of s with departures and the degraded flag. It takes ownership of
// departed, which need not be sorted. Like NewSnapshot it is for tests and simulations.
func (s *Snapshot) WithDepartures(departed []Departure, degraded bool) *Snapshot {
	slices.SortFunc(departed, func(a, b Departure) int { return strings.Compare(a.Member.ID, b.Member.ID) })
	out := *s
	out.departed, out.degraded = departed, degraded
	return &out
}

// checksum covers the data that all members must agree on: ids and epochs of the live members.
func checksum(members []Member) uint64 {
	h := xxhash.New()
	var epoch [8]byte
	for _, m := range members {
		_, _ = h.WriteString(m.ID)
		binary.BigEndian.PutUint64(epoch[:], m.Epoch)
		_, _ = h.Write(epoch[:])
	}
	return h.Sum64()
}

// Version grows by one with every snapshot that a node publishes. To compare the snapshots of two
// nodes use Checksum.
func (s *Snapshot) Version() uint64 { return s.version }

// Checksum is equal on all members that agree on the live members.
func (s *Snapshot) Checksum() uint64 { return s.checksum }

// Members returns the live members, including this node, sorted by ID. The slice belongs to the
// snapshot: do not change it.
func (s *Snapshot) Members() []Member { return s.members }

// Self returns this node's own entry.
func (s *Snapshot) Self() Member {
	m, _ := s.Get(s.self)
	return m
}

// Get returns a member by its stable ID, in O(log n).
func (s *Snapshot) Get(id string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(s.members, id, func(m Member, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		return Member{}, false
	}
	return s.members[i], true
}

// Degraded reports that this node may be cut off from the cluster: it lost more than 40 % of the
// members within one suspicion window, or any member while its own probes were not answered.
// Consumers should then keep their peers. The flag is cleared when the lost members are back (all
// of them, or all but 40 % of the members for one more window), or when they stayed away for two
// more windows while this node saw others and its own probes succeeded. A node that sees no other
// member stays degraded. Members that leave on purpose do not count.
func (s *Snapshot) Degraded() bool { return s.degraded }

// Departures returns the members that departed in the last hour and have not returned, at most
// 1024, sorted by ID. A degraded snapshot has all members that failed, however long ago. The slice
// belongs to the snapshot.
func (s *Snapshot) Departures() []Departure { return s.departed }

// Departed returns how a member departed, in O(log n), if Departures has it.
func (s *Snapshot) Departed(id string) (Departure, bool) {
	if s == nil {
		return Departure{}, false
	}
	i, ok := slices.BinarySearchFunc(s.departed, id, func(d Departure, id string) int { return strings.Compare(d.Member.ID, id) })
	if !ok {
		return Departure{}, false
	}
	return s.departed[i], true
}

// WithRole returns the members of one role, sorted by ID.
func (s *Snapshot) WithRole(role identity.Role) []Member {
	var out []Member
	for _, m := range s.members {
		if m.Role == role {
			out = append(out, m)
		}
	}
	return out
}

// replacement is one member before and after.
type replacement = struct{ Old, New Member }

// Changes are the differences between two snapshots of one node. Every id is in at most one
// of the lists, and each list is sorted by id.
type Changes struct {
	// Joined are in the new snapshot only.
	Joined []Member
	// Left and Failed are only in the old snapshot, as they were there. A member whose
	// departure was not announced, or is not recorded any more, is in Failed.
	Left, Failed []Member
	// Superseded are members that now run as another instance: they were restarted.
	Superseded []replacement
	// Changed are the same instances with changed properties.
	Changed []replacement
}

// Diff compares two snapshots of one node, in O(n). A nil snapshot has no members. Diff is a
// pure function: a change that was reverted between the snapshots does not appear. Both lists are
// sorted by id, so it merges them.
func Diff(before, after *Snapshot) Changes {
	var c Changes
	if before == after {
		return c
	}
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
				c.Superseded = append(c.Superseded, replacement{a[0], b[0]})
			case a[0] != b[0]:
				c.Changed = append(c.Changed, replacement{a[0], b[0]})
			}
			a, b = a[1:], b[1:]
		}
	}
	return c
}
