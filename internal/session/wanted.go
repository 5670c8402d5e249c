package session

import (
	"cmp"
	"slices"
	"strings"
)

// wish is a relay to have a session with.
type wish struct {
	id        string
	rows      int      // that name the relay
	addresses []string // where it may listen, the likeliest first
}

// stated is an address of a relay, as rows have it.
type stated struct {
	address string
	rows    int
}

// wishes returns the relays of the rows of all sessions, by id, and the spares. A relay has the address
// of its own row if there is a session with it, otherwise every address that rows state, those of most
// rows first: with any other rule, such as the latest epoch, one relay could take the others away by a
// row with wrong addresses. A wrong address costs a dial that fails. mu is held.
func (c *Client) wishes() (wanted map[string]*wish, spares []RowRelay) {
	wanted = map[string]*wish{}
	addresses, own := map[string][]stated{}, map[string]string{}
	for _, l := range c.inOrder() {
		if l.row == nil {
			continue
		}
		counted := map[string]bool{}
		for i, relay := range l.row.Relays {
			if counted[relay.ID] {
				continue
			}
			counted[relay.ID] = true
			if relay.ID == l.row.Self {
				own[relay.ID] = relay.Address
			}
			addresses[relay.ID] = state(addresses[relay.ID], relay.Address)
			if i >= l.row.Size {
				spares = append(spares, relay)
				continue
			}
			if wanted[relay.ID] == nil {
				wanted[relay.ID] = &wish{id: relay.ID}
			}
			wanted[relay.ID].rows++
		}
	}
	for id, w := range wanted {
		if address := own[id]; address != "" {
			w.addresses = []string{address}
			continue
		}
		slices.SortStableFunc(addresses[id], func(a, b stated) int { return cmp.Compare(b.rows, a.rows) })
		for _, s := range addresses[id] {
			w.addresses = append(w.addresses, s.address)
		}
	}
	return wanted, spares
}

// state adds an address that a row states.
func state(all []stated, address string) []stated {
	for i := range all {
		if all[i].address == address {
			all[i].rows++
			return all
		}
	}
	return append(all, stated{address, 1})
}

// byRows returns the relays that most rows name first: a row of many that do not answer delays none of
// the others.
func byRows(wanted map[string]*wish) []*wish {
	out := make([]*wish, 0, len(wanted))
	for _, w := range wanted {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *wish) int { return cmp.Or(cmp.Compare(b.rows, a.rows), strings.Compare(a.id, b.id)) })
	return out
}

// down reports whether the last dial of the likeliest address has failed: a single row could state a new
// address again and again. mu is held.
func (c *Client) down(w *wish) bool {
	t := c.tries[w.addresses[0]]
	return t != nil && t.failures > 0
}

// dialling returns how many sessions have not begun, and how many may be dialled together: two for each
// relay of the shortest row, its spares included. mu is held.
func (c *Client) dialling() (now, most int) {
	shortest := maxRow
	for _, l := range c.links {
		if l.row == nil {
			now++
		} else {
			shortest = min(shortest, len(l.row.Relays))
		}
	}
	return now, 2 * max(shortest, lonelyDials)
}
