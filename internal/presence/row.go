package presence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
)

// rowOf returns the relays that a worker should have sessions with: those with the highest hashes of
// both ids. It depends on the relays alone, so all relays that see the same ones agree, a worker that
// comes or goes moves no session, and a relay that comes or goes only its share. Relays that leave
// or drain are left out while there are others.
func rowOf(worker string, relays []membership.Member, size int) []session.RowRelay {
	able := slices.DeleteFunc(slices.Clone(relays), func(m membership.Member) bool { return m.Leaving || m.Draining || m.ForwardAddr == "" })
	if len(able) == 0 {
		able = slices.DeleteFunc(slices.Clone(relays), func(m membership.Member) bool { return m.ForwardAddr == "" })
	}
	type scored struct {
		hash uint64
		at   int
	}
	seed := ring.Hash(worker, 0)
	scores := make([]scored, len(able))
	for i, m := range able {
		scores[i] = scored{ring.Hash(m.ID, seed), i}
	}
	slices.SortFunc(scores, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.hash, a.hash), strings.Compare(able[a.at].ID, able[b.at].ID))
	})
	var row []session.RowRelay
	for _, one := range scores[:min(size, len(scores))] {
		m := able[one.at]
		row = append(row, session.RowRelay{ID: m.ID, Epoch: m.Epoch, Address: m.ForwardAddr})
	}
	return row
}

// spareRelays is how many relays a worker knows in addition to its row. They take the places of
// relays that it cannot reach: the others see the death of a relay seconds later than its workers.
const spareRelays = 2

// row returns the relays of a worker, the row first.
func (s *Server) row(worker string, size int) []session.RowRelay {
	snapshot := s.fleet.Snapshot()
	if snapshot == nil {
		return nil
	}
	return rowOf(worker, s.relays(snapshot), size)
}
