package relaypool

import "time"

// member is a peer with a place in the pool, or one that is being connected for a place.
type member struct {
	peer     *peer
	role     Role    // NoRole while it is being connected for the first time
	links    []*link // opening and open connections, oldest first
	since    time.Time
	renewAt  time.Time // when a successor is drawn because of MaxAge
	nearerAt time.Time // earliest time of the next attempt to move to a nearer peer
	renewing bool      // a successor, possibly the same peer, is being connected
	replaces *member   // the member whose place this one takes when it is connected
	reason   Reason    // why it replaces that member
}

// link is one connection.
type link struct {
	id       linkID
	peer     *peer
	member   *member // nil while draining
	open     bool
	renews   bool // when it is open, the other connections of its member are drained
	full     bool // its peer takes no more requests on it for now
	answered bool
	inFlight int
	openedAt time.Time
	idleAt   time.Time // when the last request ended
}

// linkID identifies a connection of one table. Ids are never reused.
type linkID uint64

// opening is a connection that the caller must open.
type opening struct {
	Link linkID
	Peer Peer
}

// ready returns the oldest open connection with room for a request, or nil. Newer
// connections, which were opened for a burst, then become idle and are closed.
func (t *table) ready(m *member) *link {
	for _, l := range m.links {
		if l.open && t.room(l) {
			return l
		}
	}
	return nil
}

// room reports whether a connection has room for a request. A peer may allow fewer than
// Config.Streams, and a connection shows it only some time after it is open: until its first
// answer it gets no more than the last connection to the peer that was full.
func (t *table) room(l *link) bool {
	most := t.cfg.Streams
	if !l.answered && l.peer.carries > 0 {
		most = min(most, l.peer.carries)
	}
	return !l.full && l.inFlight < most
}

func (m *member) connected() bool {
	for _, l := range m.links {
		if l.open {
			return true
		}
	}
	return false
}

// grow returns a connection that is being opened and has room for a request, if necessary
// a new one; nil at the limits.
func (t *table) grow(m *member) *link {
	for _, l := range m.links {
		if !l.open && t.room(l) {
			return l
		}
	}
	if m.peer.links >= t.cfg.MaxPerPeer || !t.makeRoom() {
		return nil
	}
	return t.newLink(m)
}

// makeRoom reports whether one more connection may be opened. At the limit it drains the
// connection that has been idle for longest.
func (t *table) makeRoom() bool {
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

// spare yields the idle connections of the member except its first open one.
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

func (t *table) newLink(m *member) *link {
	t.lastLink++
	l := &link{id: t.lastLink, peer: m.peer, member: m}
	m.links = append(m.links, l)
	m.peer.links++
	t.links[l.id] = l
	t.opens = append(t.opens, opening{l.id, m.peer.Peer})
	return l
}

// drain takes a connection out of use: it is closed when its last request ends. A
// connection that is still being opened is cancelled.
func (t *table) drain(l *link) {
	l.unlink()
	if !l.open || l.inFlight == 0 {
		t.closes = append(t.closes, l.id)
		t.drop(l)
	}
}

// unlink removes a connection from its member.
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
func (t *table) drop(l *link) {
	l.peer.links--
	delete(t.links, l.id)
}
