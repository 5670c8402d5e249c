package routing

import (
	"net/netip"
	"sync"
)

// Clients counts the requests of a service that are in flight by client address. An
// address takes memory only while a request of it is in flight. The zero value is
// ready. All methods may be called from any goroutine.
//
// It belongs to the service, and not to what serves requests, because a reload
// replaces that while requests are in flight.
type Clients struct {
	mu       sync.Mutex
	inFlight map[netip.Addr]int // never 0
}

// Enter counts one more request of a client, unless it has limit of them in flight.
func (c *Clients) Enter(client netip.Addr, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.inFlight[client]
	if n >= limit {
		return false
	}
	if c.inFlight == nil {
		c.inFlight = map[netip.Addr]int{}
	}
	c.inFlight[client] = n + 1
	return true
}

// Leave gives back what Enter counted. The map goes with the last request: one that
// was large once would stay large.
func (c *Clients) Leave(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.inFlight[client]; n > 1 {
		c.inFlight[client] = n - 1
		return
	}
	delete(c.inFlight, client)
	if len(c.inFlight) == 0 {
		c.inFlight = nil
	}
}

// Len is how many clients have a request in flight.
func (c *Clients) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight)
}
