package handshake

import (
	"net"
	"slices"
	"sync"
)

// Limits of Silent. A member sends its first bytes with the stream or after one round trip; the second
// place is for a stream that its restart left behind.
const (
	MaxSilent        = 64
	MaxSilentPerPeer = 2 // of them of one member
)

// Silent holds the streams of one protocol on which a member has proven its identity and sent nothing
// since. The zero value is empty.
type Silent struct {
	mu      sync.Mutex
	streams []silentStream // oldest first
}

type silentStream struct {
	peer string
	conn net.Conn
}

// Await adds a stream. There is always room for it: over a limit the oldest stream is closed, of the
// same member if that member is over its share, because otherwise one member could keep out all others.
func (s *Silent) Await(peer string, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ofPeer := func(w silentStream) bool { return w.peer == peer }
	own := 0
	for _, w := range s.streams {
		if ofPeer(w) {
			own++
		}
	}
	out := -1
	if own >= MaxSilentPerPeer {
		out = slices.IndexFunc(s.streams, ofPeer)
	} else if len(s.streams) >= MaxSilent {
		out = 0
	}
	if out >= 0 {
		cut(s.streams[out].conn)
		s.streams = slices.Delete(s.streams, out, out+1)
	}
	s.streams = append(s.streams, silentStream{peer, conn})
}

// Heard removes a stream. It reports whether the stream still had its place; without it the stream is
// closed, even if its first bytes have just arrived.
func (s *Silent) Heard(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.streams, func(w silentStream) bool { return w.conn == conn })
	if i >= 0 {
		s.streams = slices.Delete(s.streams, i, i+1)
	}
	return i >= 0
}

// Len returns the number of streams.
func (s *Silent) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// cut closes a connection without waiting for the peer: over TLS, Close first sends a record, which
// a peer that does not read delays for seconds.
func cut(conn net.Conn) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	_ = conn.Close()
}
