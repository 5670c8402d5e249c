package membership

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Snapshot is the cluster as this node saw it at one moment. It is immutable:
// hold it as long as you like, share it between goroutines, never write to it.
type Snapshot struct {
	version  uint64
	members  []Member // sorted by ID
	self     string
	checksum uint64
	departed []Departure // sorted by ID
	degraded bool
}

// NewSnapshot takes ownership of members, which need not be sorted. A Node makes
// its own snapshots; this is for tests and simulations of what consumes them.
func NewSnapshot(version uint64, self string, members []Member) *Snapshot {
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return &Snapshot{version: version, members: members, self: self, checksum: checksum(members)}
}

// WithDepartures returns a copy of s that also remembers who went, and whether it
// is degraded. It takes ownership of departed, which need not be sorted. Like
// NewSnapshot it is for tests and simulations of consumers.
func (s *Snapshot) WithDepartures(departed []Departure, degraded bool) *Snapshot {
	slices.SortFunc(departed, func(a, b Departure) int { return strings.Compare(a.Member.ID, b.Member.ID) })
	out := *s
	out.departed, out.degraded = departed, degraded
	return &out
}

// checksum covers what members must agree on: who is there, in which life.
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

// Version grows by one with every snapshot a node publishes. Versions of two
// nodes are not comparable; use Checksum for that.
func (s *Snapshot) Version() uint64 { return s.version }

// Checksum is equal on all members that agree on who is alive.
func (s *Snapshot) Checksum() uint64 { return s.checksum }

// Members lists the live members, this node included, sorted by ID. The slice
// belongs to the snapshot: do not change it.
func (s *Snapshot) Members() []Member { return s.members }

// Self is this node's own entry.
func (s *Snapshot) Self() Member {
	m, _ := s.Get(s.self)
	return m
}

// Get finds a member by its stable ID, in O(log n).
func (s *Snapshot) Get(id string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(s.members, id, func(m Member, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		return Member{}, false
	}
	return s.members[i], true
}

// Degraded reports that this node may be cut off from the cluster: it lost sight
// of more than 40 % of the members within one suspicion window, or of any while
// its own probes went unanswered. Consumers then keep the peers that they have.
// It is cleared when the lost are back (all of them, or all but 40 % of the
// members for one more window), or when they stayed away for two more windows
// while this node saw others and its own probes succeeded. A node that sees
// nobody stays degraded. Members that leave on purpose do not count.
func (s *Snapshot) Degraded() bool { return s.degraded }

// Departures lists the members that went in the last hour and are not back, at
// most 1024 of them, sorted by ID. The slice belongs to the snapshot.
func (s *Snapshot) Departures() []Departure { return s.departed }

// Departed finds how a member went, in O(log n). It knows those that went in the
// last hour.
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

// WithRole lists the members of one role, sorted by ID.
func (s *Snapshot) WithRole(role Role) []Member {
	var out []Member
	for _, m := range s.members {
		if m.Role == role {
			out = append(out, m)
		}
	}
	return out
}
