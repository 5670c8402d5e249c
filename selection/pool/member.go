package pool

import "time"

// member is a peer with a place in the pool, or on the way to one.
type member struct {
	peer     *peer
	role     Role    // NoRole while it is being connected for the first time
	links    []*link // opening and open ones, oldest first
	since    time.Time
	renewAt  time.Time // when its place is drawn for anew
	nearerAt time.Time // before then no move to a nearer peer is tried
	renewing bool      // a successor, perhaps itself, is being connected
	replaces *member   // whose place it takes when it is connected
	because  Reason    // of replaces
}

// link is one connection.
type link struct {
	id       LinkID
	peer     *peer
	member   *member // nil once it is draining
	open     bool
	renews   bool // the others of its member are to be drained when it is open
	inFlight int
	openedAt time.Time
	idleAt   time.Time // since when nothing is in flight
}

// LinkID names a connection of one table. It is never used again.
type LinkID uint64

// Opening is a connection to be opened.
type Opening struct {
	Link LinkID
	Peer Peer
}

// ready returns an open connection with room for a request, or nil. It is the
// oldest: the later ones, opened for a burst, then fall idle and are closed.
func (m *member) ready(streams int) *link {
	for _, l := range m.links {
		if l.open && l.inFlight < streams {
			return l
		}
	}
	return nil
}

func (m *member) connected() bool {
	for _, l := range m.links {
		if l.open {
			return true
		}
	}
	return false
}

// grow returns a connection on its way that has room for a request, perhaps a new
// one; nil at the limits.
func (t *Table) grow(m *member) *link {
	for _, l := range m.links {
		if !l.open && l.inFlight < t.cfg.Streams {
			return l
		}
	}
	if m.peer.links >= t.cfg.MaxPerPeer || !t.makeRoom() {
		return nil
	}
	return t.newLink(m)
}

// makeRoom says whether one more connection may be opened, and at the limit gives
// the one up that has been idle for longest.
func (t *Table) makeRoom() bool {
	if len(t.links) < t.cfg.MaxTotal {
		return true
	}
	var oldest *link
	for m := range t.members() {
		for l := range m.spare() {
			if oldest == nil || l.idleAt.Before(oldest.idleAt) {
				oldest = l
			}
		}
	}
	if oldest == nil {
		return false
	}
	t.drain(oldest)
	return true
}

// spare yields the idle connections beyond the member's first open one.
func (m *member) spare() func(yield func(*link) bool) {
	return func(yield func(*link) bool) {
		first := true
		for _, l := range append([]*link(nil), m.links...) {
			if !l.open {
				continue
			}
			if !first && l.inFlight == 0 && !yield(l) {
				return
			}
			first = false
		}
	}
}

func (t *Table) newLink(m *member) *link {
	t.lastLink++
	l := &link{id: t.lastLink, peer: m.peer, member: m}
	m.links = append(m.links, l)
	m.peer.links++
	t.links[l.id] = l
	t.opens = append(t.opens, Opening{l.id, m.peer.Peer})
	return l
}

// drain takes a connection out of use. It is closed when its last request ends; one
// that is not open yet is given up.
func (t *Table) drain(l *link) {
	l.unlink()
	if !l.open || l.inFlight == 0 {
		t.closes = append(t.closes, l.id)
		t.drop(l)
	}
}

// unlink takes a connection from its member.
func (l *link) unlink() {
	m := l.member
	l.member = nil
	for i, other := range m.links {
		if other == l {
			m.links = append(m.links[:i:i], m.links[i+1:]...)
			return
		}
	}
}

// drop forgets a connection.
func (t *Table) drop(l *link) {
	l.peer.links--
	delete(t.links, l.id)
}
