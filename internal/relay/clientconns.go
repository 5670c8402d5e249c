package relay

import (
	"net"
	"net/netip"

	"github.com/ringway/ringway/internal/handshake"
)

// connsOf are the connections of one client, in the order in which they were opened.
type connsOf struct {
	addr        netip.Addr
	n           int
	first, last *clientConn
}

const (
	// leastConns is how many connections each client may have, however few are free.
	leastConns = 16
	// ownScan is how many connections of a client are checked for one that waits.
	ownScan = 32
)

// claim counts a connection as one of a client. A client may have as many as are free, so that each
// leaves half of what was free to the others. A connection beyond that takes the place of one of the
// same client that waits for a request. If none of the oldest does, claim returns false.
func (l *clients) claim(c *clientConn, addr netip.Addr) bool {
	addr = handshake.SourceOf(addr).Addr()
	l.mu.Lock()
	if c.gone.Load() {
		l.mu.Unlock()
		return false
	}
	of := l.of[addr]
	if of == nil {
		of = &connsOf{addr: addr}
		l.of[addr] = of
	}
	var victim *clientConn
	if free := int(l.limit.Load()) - len(l.open); of.n >= max(free, leastConns) {
		if victim = l.waitsOf(of); victim == nil {
			l.mu.Unlock()
			l.overShare.Inc()
			return false
		}
	}
	of.n++
	c.client, c.prev = of, of.last
	if of.last != nil {
		of.last.next = c
	} else {
		of.first = c
	}
	of.last = c
	l.mu.Unlock()
	if victim != nil {
		l.evicted.Inc()
		_ = victim.Close()
	}
	return true
}

// waitsOf takes a connection of a client that waits for a request, nil if there is none among the
// oldest. The lock is held.
func (l *clients) waitsOf(of *connsOf) *clientConn {
	now, c := l.now(), of.first
	for n := 0; c != nil && n < ownScan; n++ {
		if since := c.since.Load(); since != busy && now-since >= int64(requestTime) && c.since.CompareAndSwap(since, busy) {
			return c
		}
		c = c.next
	}
	return nil
}

// leave ends what claim counted. The lock is held.
func (l *clients) leave(c *clientConn) {
	of := c.client
	if of == nil {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		of.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		of.last = c.prev
	}
	c.client, c.prev, c.next = nil, nil, nil
	if of.n--; of.n == 0 {
		delete(l.of, of.addr)
	}
}

// addrOf returns the address of the other end of a TCP connection, not valid if there is none.
func addrOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
